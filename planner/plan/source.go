package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/stint-dev/stint/planner/accesslog"
)

// A source is a log that may be opened repeatedly: a file, or what came through a pipe.
type source struct {
	name string
	pipe *pipe // nil for a regular file
}

// sources returns the logs of the options. All pipes are read at once, to their ends. If the
// context ends before, cut is true, and what came until then is used. The work that follows then
// needs another context, rest.
func (o *Options) sources(ctx context.Context) (all []*source, rest context.Context, cut bool, err error) {
	var pipes []*pipe
	for _, name := range o.Files {
		s := &source{name: name}
		from := func() (io.ReadCloser, error) { return openPipe(name) }
		info, err := os.Stat(name)
		if name == "-" {
			s.name, from = "standard input", func() (io.ReadCloser, error) { return io.NopCloser(o.Stdin), nil }
		}
		if name == "-" || err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			if s.pipe, err = newPipe(from); err != nil {
				closeAll(all)
				return nil, ctx, false, err
			}
			pipes = append(pipes, s.pipe)
		}
		all = append(all, s)
	}
	stop := o.watch("reading", func() (read, of int64) {
		for _, p := range pipes {
			p.mu.Lock()
			read += p.n
			p.mu.Unlock()
		}
		return read, 0
	})
	defer stop()
	rest = ctx
	for _, p := range pipes {
		select {
		case <-p.done:
			continue
		case <-ctx.Done():
		}
		if !cut { // what was sent before is in the buffer of the system
			time.Sleep(lastCall)
		}
		cut, rest = true, context.WithoutCancel(ctx)
		p.stop()
	}
	for _, p := range pipes {
		err = errors.Join(err, p.failed)
	}
	if err != nil {
		closeAll(all)
	}
	return all, rest, cut, err
}

// lastCall is how long pipes are still read after the context has ended.
const lastCall = 50 * time.Millisecond

// openPipe is a variable, so that a test can replace it.
var openPipe = func(name string) (io.ReadCloser, error) { return os.Open(name) }

// open opens the log at its beginning.
func (s *source) open() (*accesslog.File, error) {
	if s.pipe == nil {
		return accesslog.Open(s.name)
	}
	p := s.pipe
	f, err := accesslog.From(s.name, io.MultiReader(io.NewSectionReader(p.kept, 0, p.n), broken{p.err}), time.Time{})
	if err == nil {
		f.Size = p.n
	}
	return f, err
}

// broken ends the text of a log with an error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func closeAll(from []*source) {
	for _, s := range from {
		if s.pipe != nil {
			s.pipe.stop()
			s.pipe.kept.Close()
		}
	}
}

// A pipe is read once, and kept in a file without a name.
type pipe struct {
	done chan struct{} // closed when reading ends

	mu      sync.Mutex
	kept    *os.File
	n       int64 // bytes kept
	err     error // why reading ended: io.EOF, or the error
	failed  error // why the pipe cannot be opened or kept
	stopped bool  // what still comes is dropped
}

func newPipe(from func() (io.ReadCloser, error)) (*pipe, error) {
	p := &pipe{done: make(chan struct{}), err: io.EOF}
	var err error
	if p.kept, err = os.CreateTemp("", "stint-plan-"); err != nil {
		return nil, err
	}
	if err := os.Remove(p.kept.Name()); err != nil {
		p.kept.Close()
		return nil, err
	}
	go p.read(from)
	return p, nil
}

// read keeps what comes. Nothing wakes it while the pipe is silent or has no writer, so nothing
// waits for it once the pipe is stopped.
func (p *pipe) read(from func() (io.ReadCloser, error)) {
	defer close(p.done)
	in, err := from()
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.stopped {
			p.failed = err
		}
		return
	}
	defer in.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := in.Read(buffer)
		if !p.keep(buffer[:n], err) {
			return
		}
	}
}

// keep keeps data that has come, and reports whether more is wanted.
func (p *pipe) keep(data []byte, ended error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	n, err := p.kept.WriteAt(data, p.n)
	p.n += int64(n)
	if err != nil {
		p.failed = fmt.Errorf("what comes through a pipe is kept in %s until it is read again, and cannot be: %w: make room there, or name another directory by TMPDIR", os.TempDir(), err)
		return false
	}
	if ended != nil {
		p.err = ended
	}
	return ended == nil
}

// stop drops what still comes.
func (p *pipe) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}
