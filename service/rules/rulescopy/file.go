package rulescopy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

const (
	format = "stint rules copy 3\n"
	// glance is about how often a followed file is checked.
	glance = 200 * time.Millisecond
)

// A File is a copy in a file. It is a [rulesource.Source] of what the file holds, and [File.Begin]
// writes it. One goroutine at a time may use it; several processes may write the same file.
type File struct {
	path string
	read os.FileInfo        // state of the file at the last Load; nil before the first
	held rulesource.Version // the version of that Load
	writer
}

var _ rulesource.Source = (*File)(nil)

// NewFile returns the copy at a path. With "" nothing is kept.
func NewFile(path string) *File { return &File{path: path} }

// String returns the path.
func (c *File) String() string { return c.path }

// Last returns the snapshot of the copy, and whether there is a readable one. It reads the whole
// file.
func (c *File) Last() (last rulesource.Snapshot, there bool) {
	if c.path == "" {
		return last, false
	}
	if _, err := c.scan(func(s *rulesource.Snapshot) error { last = *s; return nil }, nil); err != nil {
		return rulesource.Snapshot{}, false
	}
	return last, true
}

// scan reads the file until a function returns an error: it calls begin with the snapshot, and
// each, which may be nil, with every override and plan. If the end is missing, the error says that
// the file is not whole.
func (c *File) scan(begin func(*rulesource.Snapshot) error, each func(*Frame) error) (os.FileInfo, error) {
	file, err := os.Open(c.path)
	if err != nil {
		return nil, c.failed(err)
	}
	defer file.Close() // the file was only read
	info, err := file.Stat()
	r := bufio.NewReaderSize(file, 1<<20)
	head := make([]byte, len(format))
	if err == nil {
		if _, err = io.ReadFull(r, head); err != nil || string(head) != format {
			err = errors.New("this is no copy of rules, or one of another version of stint")
		}
	}
	if err != nil {
		return nil, c.failed(err)
	}
	frames := NewReader(r)
	first, err := frames.Next()
	if err != nil || first.Begin == nil {
		return nil, c.failed(errors.New("no whole copy in it"))
	}
	if err := begin(first.Begin); err != nil {
		return nil, err
	}
	read := frames.Next
	if each == nil {
		read = frames.bound
	}
	for {
		f, err := read()
		switch {
		case err == nil && f == nil:
		case err == nil && f.End:
			return info, nil
		case err != nil || f.Override == nil && f.Plan == nil:
			return nil, c.failed(errors.New("no whole copy in it"))
		default:
			if err := each(f); err != nil {
				return nil, err
			}
		}
	}
}

// failed adds the name of the file to an error.
func (c *File) failed(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// Load implements [rulesource.Source]. It reads the whole file.
func (c *File) Load(ctx context.Context, _ rulesource.Version, to rulesource.Receiver) (s *rulesource.Snapshot, err error) {
	info, err := c.scan(func(begin *rulesource.Snapshot) error {
		s = begin
		return to.Begin(s, true)
	}, func(f *Frame) error { return errors.Join(ctx.Err(), f.DeliverTo(to)) })
	if errors.Is(err, fs.ErrNotExist) {
		return new(rulesource.Snapshot), rulesource.ErrEmpty
	}
	if err != nil {
		return nil, err
	}
	c.read, c.held = info, s.Version
	return s, nil
}

// Wait implements [rulesource.Source]. It checks the file now and then.
func (c *File) Wait(ctx context.Context, held rulesource.Version) error {
	for {
		info, err := os.Stat(c.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if held != (rulesource.Version{}) {
				return nil
			}
		case err != nil:
			return c.failed(err)
		case c.read == nil || c.held != held || !same(c.read, info):
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(glance - rand.N(glance/5)):
		}
	}
}

// same reports whether a file is unchanged.
func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Close implements [rulesource.Source].
func (c *File) Close() error { return nil }
