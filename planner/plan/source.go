package plan

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/planner/accesslog"
)

// A source is a log that may be opened again and again: a file, or what comes
// through a pipe and is kept in a file without a name.
type source struct {
	name string
	pipe *pipe // nil for a regular file
}

// sources are those of the options. All pipes are read from now on: none waits
// for another, and each ends at the latest when the context does.
func (o *Options) sources(ctx context.Context) (all []*source) {
	for _, name := range o.Files {
		s := &source{name: name}
		if name == "-" {
			s.pipe = newPipe(ctx, func() (io.ReadCloser, error) { return io.NopCloser(o.Stdin), nil })
		} else if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			s.pipe = newPipe(ctx, func() (io.ReadCloser, error) { return openPipe(name) })
		}
		all = append(all, s)
	}
	return all
}

// openPipe is not a function, so that a test can play pipes.
var openPipe = func(name string) (io.ReadCloser, error) { return os.Open(name) }

// open opens the log at its beginning. A pipe that is silent is not waited for
// once the context has ended. One reader at a time may be open.
func (s *source) open(ctx context.Context) (*accesslog.File, error) {
	if s.pipe == nil {
		return accesslog.Open(s.name)
	}
	name := s.name
	if name == "-" {
		name = "standard input"
	}
	if err := s.pipe.keep(); err != nil {
		return nil, err
	}
	f, err := accesslog.From(name, &pipeReader{pipe: s.pipe, ctx: ctx}, time.Time{})
	if failed := s.pipe.failed; err == nil && failed != nil {
		f.Close()
		return nil, failed
	}
	return f, err
}

func closeAll(from []*source) {
	for _, s := range from {
		if p := s.pipe; p != nil {
			close(p.quit)
			if p.kept != nil {
				p.kept.Close()
			}
		}
	}
}

// A pipe is read once, as it comes, and kept to be read again. Where the context
// ends it, it ends there for everyone who reads it.
type pipe struct {
	ctx    context.Context
	from   func() (io.ReadCloser, error)
	chunks chan chunk
	quit   chan struct{}
	kept   *os.File
	n      int64       // bytes kept
	err    error       // what ended it
	failed error       // why it cannot be opened
	late   int         // chunks that came after the context had ended
	whole  atomic.Bool // it has ended by itself
}

// A chunk is what one read gave.
type chunk struct {
	data   []byte
	err    error
	failed bool // the pipe cannot be opened
}

// What a pipe still gives when the context has ended: what was sent before is in
// the buffer of the system, and must be fetched.
const (
	lastCall = 50 * time.Millisecond
	mostLate = 16 // chunks
)

func newPipe(ctx context.Context, from func() (io.ReadCloser, error)) *pipe {
	p := &pipe{ctx: ctx, from: from, chunks: make(chan chunk), quit: make(chan struct{})}
	go p.pump()
	return p
}

// keep makes the file.
func (p *pipe) keep() (err error) {
	if p.kept == nil {
		p.kept, err = unnamed()
	}
	return err
}

// pump reads on until the pipe ends. Nothing wakes it while the pipe is silent,
// or has no one who writes, and nothing waits for it.
func (p *pipe) pump() {
	send := func(c chunk) bool {
		select {
		case p.chunks <- c:
			return true
		case <-p.quit:
			return false
		}
	}
	in, err := p.from()
	if err != nil {
		send(chunk{err: err, failed: true})
		return
	}
	defer in.Close()
	var buffers [2][64 << 10]byte
	for i := 0; err == nil; i++ {
		b := &buffers[i%2] // the other one is with the reader
		var n int
		n, err = in.Read(b[:])
		if !send(chunk{data: b[:n], err: err}) {
			return
		}
	}
}

// A pipeReader reads a pipe from its beginning.
type pipeReader struct {
	*pipe
	ctx context.Context // of this reading
	at  int64
}

// Read implements [io.Reader].
func (r *pipeReader) Read(p []byte) (int, error) {
	for r.at == r.n {
		if r.err != nil {
			return 0, r.err
		}
		if r.pipe.ctx.Err() != nil {
			r.last()
			continue
		}
		select {
		case <-r.pipe.ctx.Done():
		case <-r.ctx.Done():
			if r.pipe.ctx.Err() == nil {
				return 0, r.ctx.Err()
			}
		case c := <-r.chunks:
			r.take(c)
		}
	}
	n, err := r.kept.ReadAt(p[:min(int64(len(p)), r.n-r.at)], r.at)
	r.at += int64(n)
	return n, err
}

// last takes what still comes when the context has ended.
func (p *pipe) last() {
	if p.late++; p.late > mostLate {
		p.err = p.ctx.Err()
		return
	}
	select {
	case c := <-p.chunks:
		p.take(c)
	case <-time.After(lastCall):
		p.err = p.ctx.Err()
	}
}

// take keeps what has come.
func (p *pipe) take(c chunk) {
	n, err := p.kept.WriteAt(c.data, p.n)
	p.n += int64(n)
	if p.err = c.err; err != nil {
		p.err = err
	}
	if c.failed {
		p.failed = c.err
	}
	p.whole.Store(p.err != nil)
}

// unnamed makes a temporary file that is gone when it is closed.
func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "stint-plan-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
