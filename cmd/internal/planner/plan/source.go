package plan

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/stint-dev/stint/cmd/internal/planner/accesslog"
)

// A source is a log that may be opened again and again: a file, or what comes
// through a pipe and is kept in a file without a name.
type source struct {
	name string
	pipe *pipe // nil for a regular file
}

// sources are those of the options.
func (o *Options) sources() (all []*source) {
	for _, name := range o.Files {
		s := &source{name: name}
		if name == "-" {
			s.pipe = newPipe(o.Stdin)
		} else if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			if f, err := os.Open(name); err == nil {
				s.pipe = newPipe(f)
			}
		}
		all = append(all, s)
	}
	return all
}

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
	return accesslog.From(name, &pipeReader{pipe: s.pipe, ctx: ctx}, time.Time{})
}

func (s *source) close() {
	if p := s.pipe; p != nil {
		close(p.quit)
		if p.kept != nil {
			p.kept.Close()
		}
	}
}

// A pipe is read once, as it comes, and kept to be read again.
type pipe struct {
	in     io.Reader
	chunks chan chunk
	quit   chan struct{}
	kept   *os.File
	n      int64 // bytes kept
	err    error // what ended it
}

// A chunk is what one read gave.
type chunk struct {
	data []byte
	err  error
}

func newPipe(in io.Reader) *pipe {
	return &pipe{in: in, chunks: make(chan chunk), quit: make(chan struct{})}
}

// keep makes the file, and starts to read.
func (p *pipe) keep() (err error) {
	if p.kept != nil {
		return nil
	}
	if p.kept, err = unnamed(); err == nil {
		go p.pump()
	}
	return err
}

// pump reads on until the pipe ends. Nobody can wake it while the pipe is
// silent, and nobody waits for it.
func (p *pipe) pump() {
	var buffers [2][64 << 10]byte
	for i := 0; ; i++ {
		b := &buffers[i%2] // the other one is with the reader
		n, err := p.in.Read(b[:])
		select {
		case p.chunks <- chunk{b[:n], err}:
		case <-p.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// A pipeReader reads a pipe from its beginning.
type pipeReader struct {
	*pipe
	ctx context.Context
	at  int64
}

// Read implements [io.Reader].
func (r *pipeReader) Read(p []byte) (int, error) {
	for r.at == r.n {
		if r.err != nil {
			return 0, r.err
		}
		select {
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		case c := <-r.chunks:
			n, err := r.kept.WriteAt(c.data, r.n)
			r.n += int64(n)
			if r.err = c.err; err != nil {
				r.err = err
			}
		}
	}
	n, err := r.kept.ReadAt(p[:min(int64(len(p)), r.n-r.at)], r.at)
	r.at += int64(n)
	return n, err
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
