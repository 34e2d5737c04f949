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
	format = "stint rules copy 2\n"
	// glance is about how often a file that is followed is looked at.
	glance = 200 * time.Millisecond
)

// A File is a copy in a file. It is a [rulesource.Source] of what is written
// there, and [File.Begin] writes. One goroutine at a time may use it; several
// processes may write the same file.
type File struct {
	path string
	read position // of the last Load
	seen position // of the last Version, with the document
	writer
}

var _ rulesource.Source = (*File)(nil)

// A position is what was read of a file, and where that ends.
type position struct {
	file os.FileInfo // nil before the first
	end  int64
	s    rulesource.Snapshot
}

// bare is a position without the document.
func (p position) bare() position {
	p.s.Document = nil
	return p
}

// NewFile returns the copy at a path; "" is none, which keeps nothing.
func NewFile(path string) *File { return &File{path: path} }

// String returns the path.
func (c *File) String() string { return c.path }

// Version returns the version of the copy, and whether there is one that can be
// read.
func (c *File) Version() (v rulesource.Version, there bool) {
	if c.path == "" {
		return v, false
	}
	at, _, err := c.check(position{})
	if err != nil {
		return v, false
	}
	c.seen = at
	return at.s.Version, true
}

// check reads the file from a position and returns where its last whole group
// ends, with the snapshot that it amounts to. It stops at what is cut off.
func (c *File) check(from position) (at position, whole bool, err error) {
	file, info, err := c.open()
	if err != nil {
		return at, false, err
	}
	defer file.Close() // it was only read
	if from.file == nil || !os.SameFile(from.file, info) || info.Size() < from.end {
		from, whole = position{end: int64(len(format))}, true
	}
	at = from
	at.file = info
	if _, err := file.Seek(from.end, io.SeekStart); err != nil {
		return at, false, c.failed(err)
	}
	r := NewReader(bufio.NewReaderSize(file, 1<<20))
	var group rulesource.Snapshot
	for {
		f, err := r.bound()
		switch {
		case err != nil && at.end == int64(len(format)):
			return at, false, c.failed(errors.New("no whole copy in it"))
		case err != nil:
			return at, whole, nil
		case f == nil:
		case f.Begin != nil:
			group = *f.Begin
		case f.End:
			if group.Document == nil { // the rules have not changed
				group.Document, group.Name, group.Hash = at.s.Document, at.s.Name, at.s.Hash
			}
			at.s, at.end = group, from.end+r.At
		}
	}
}

// added is check, but of everything only what was added since Version.
func (c *File) added(from position) (at position, whole bool, err error) {
	if from.file != nil || c.seen.file == nil {
		return c.check(from)
	}
	at, whole, err = c.check(c.seen)
	if err == nil && !whole {
		c.seen, whole = at, true
	}
	return at, whole, err
}

// open opens the file behind the line that names its format.
func (c *File) open() (*os.File, os.FileInfo, error) {
	file, err := os.Open(c.path)
	if err != nil {
		return nil, nil, c.failed(err)
	}
	info, err := file.Stat()
	head := make([]byte, len(format))
	if err == nil {
		if _, err = io.ReadFull(file, head); err != nil || string(head) != format {
			err = errors.New("this is no copy of rules, or one of another version of stint")
		}
	}
	if err != nil {
		_ = file.Close() // it was only read
		return nil, nil, c.failed(err)
	}
	return file, info, nil
}

// failed names the file in an error.
func (c *File) failed(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// Load implements [rulesource.Source]: what was added to the file since the
// version held was read, else all of it.
func (c *File) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	from := c.read
	if from.file == nil || from.s.Version != held {
		from = position{}
	}
	at, whole, err := c.added(from)
	if errors.Is(err, fs.ErrNotExist) {
		return new(rulesource.Snapshot), rulesource.ErrEmpty
	}
	if err != nil {
		return nil, err
	}
	s := at.s
	if !whole && s.Hash == from.s.Hash {
		s.Document = nil // the caller holds it
	}
	if err := to.Begin(&s, whole); err != nil {
		return nil, err
	}
	if whole {
		from.end = int64(len(format))
	}
	if err := c.hand(ctx, from.end, at, to); err != nil {
		return nil, err
	}
	c.read, c.seen = at.bare(), position{}
	c.written = c.read
	return &s, ctx.Err()
}

// hand gives a receiver what the file has between two places.
func (c *File) hand(ctx context.Context, from int64, to position, receiver rulesource.Receiver) error {
	file, info, err := c.open()
	if err != nil {
		return err
	}
	defer file.Close() // it was only read
	if !os.SameFile(info, to.file) {
		return c.failed(errors.New("it was replaced while it was read"))
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return c.failed(err)
	}
	r := NewReader(bufio.NewReaderSize(io.LimitReader(file, to.end-from), 1<<20))
	for ctx.Err() == nil {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f.DeliverTo(receiver)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Wait implements [rulesource.Source]: it looks at the file now and then. An end
// that is being written is looked at again.
func (c *File) Wait(ctx context.Context, held rulesource.Version) error {
	for {
		info, err := os.Stat(c.path)
		was := c.read
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if held != (rulesource.Version{}) {
				return nil
			}
		case err != nil:
			return c.failed(err)
		case was.file == nil || was.s.Version != held || !os.SameFile(was.file, info):
			return nil
		case info.Size() != was.end:
			if at, _, err := c.check(was); err != nil || at.s.Version != held {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(glance - rand.N(glance/5)):
		}
	}
}

// Close implements [rulesource.Source].
func (c *File) Close() error { return nil }
