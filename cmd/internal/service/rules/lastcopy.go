package rules

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/stint-dev/stint/rulesource"
)

// A lastCopy is a file that holds what a node last took from its source, so
// that the node starts while the source is gone.
//
// The file is a line that names the format, then groups: a group is a begin, its
// overrides and plans, and an end, each a frame of a length, a checksum and
// JSON. The first group is everything, the others are changes that were added
// to the file. A group without its end, as after a crash, does not count.
type lastCopy struct {
	path string
	size int64 // of the file, when it was last written as a whole
	more int64 // added since
}

const (
	copyFormat = "stint rules copy 1\n"
	maxFrame   = 2 * maxBytes // a document in JSON may take twice its length
	// mostAdded is how much may be added to a file beyond its own size before it
	// is written anew.
	mostAdded = 16 << 20
	// unusable stands for more when nothing can be added to the file.
	unusable = 1 << 62
)

// A frame is one record of the file; one field is set.
type frame struct {
	Begin    *rulesource.Snapshot `json:"begin,omitempty"`
	Whole    bool                 `json:"whole,omitempty"`
	Override *rulesource.Override `json:"override,omitempty"`
	Key      []byte               `json:"key,omitempty"` // of the override or plan: any bytes
	Plan     *rulesource.Plan     `json:"plan,omitempty"`
	End      bool                 `json:"end,omitempty"`
}

// version returns the version of the copy, and whether there is one that can be
// read.
func (c *lastCopy) version() (v rulesource.Version, there bool) {
	if c.path == "" {
		return v, false
	}
	_, s, err := c.check()
	if err != nil {
		return v, false
	}
	return s.Version, true
}

// check reads the file through and returns where its last whole group ends, and
// the snapshot that it amounts to.
func (c *lastCopy) check() (end int64, s *rulesource.Snapshot, err error) {
	s = new(rulesource.Snapshot)
	var group rulesource.Snapshot
	err = c.frames(func(at int64, f *frame) error {
		switch {
		case f.Begin != nil:
			group = *f.Begin
		case f.End:
			if group.Document == nil { // the rules have not changed
				group.Document, group.Name, group.Hash = s.Document, s.Name, s.Hash
			}
			*s, end = group, at
		}
		return nil
	})
	if end == 0 && err == nil {
		err = errors.New("no whole copy in it")
	}
	if end == 0 {
		return 0, nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return end, s, nil
}

// frames calls f for each frame, with where it ends. It stops without an error
// at what is cut off or has another checksum.
func (c *lastCopy) frames(f func(end int64, f *frame) error) error {
	file, err := os.Open(c.path)
	if err != nil {
		return plain(err)
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, 1<<20)
	head := make([]byte, len(copyFormat))
	if _, err := io.ReadFull(r, head); err != nil || string(head) != copyFormat {
		return errors.New("this is no copy of rules, or one of another version of stint")
	}
	at := int64(len(head))
	var lead [8]byte
	var data []byte
	for {
		if _, err := io.ReadFull(r, lead[:]); err != nil {
			return nil
		}
		n := binary.BigEndian.Uint32(lead[:])
		if n > maxFrame {
			return nil
		}
		if int(n) > cap(data) {
			data = make([]byte, n)
		}
		data = data[:n]
		if _, err := io.ReadFull(r, data); err != nil || crc32.ChecksumIEEE(data) != binary.BigEndian.Uint32(lead[4:]) {
			return nil
		}
		at += int64(len(lead)) + int64(n)
		var one frame
		if json.Unmarshal(data, &one) != nil {
			return nil
		}
		if err := f(at, &one); err != nil {
			return err
		}
	}
}

// Load implements [rulesource.Source]: the copy as a whole, whatever is held.
func (c *lastCopy) Load(ctx context.Context, _ rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	end, s, err := c.check()
	if err != nil {
		return nil, err
	}
	if err := to.Begin(s, true); err != nil {
		return nil, err
	}
	err = c.frames(func(at int64, f *frame) error {
		switch {
		case at > end || ctx.Err() != nil:
			return errors.Join(io.EOF, ctx.Err())
		case f.Override != nil:
			f.Override.Key = string(f.Key)
			return to.Override(f.Override)
		case f.Plan != nil:
			f.Plan.Value = string(f.Key)
			return to.Plan(f.Plan)
		}
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if info, err := os.Stat(c.path); err != nil || info.Size() != end {
		c.more = unusable // what is added after a torn end would not be read
	}
	return s, ctx.Err()
}

// Wait implements [rulesource.Source]: a copy does not change by itself.
func (c *lastCopy) Wait(ctx context.Context, _ rulesource.Version) error {
	<-ctx.Done()
	return ctx.Err()
}

// Close implements [rulesource.Source].
func (c *lastCopy) Close() error { return nil }

// stale reports whether so much was added that the file should be written anew.
func (c *lastCopy) stale() bool { return c.path != "" && c.more > c.size+mostAdded }

// A copying writes what it is handed into the copy. It is thrown away unless it
// is kept.
type copying struct {
	c     *lastCopy
	whole bool
	file  *os.File
	w     *bufio.Writer
	n     int64
	err   error
}

// begin opens the file, a new one beside the old for a whole copy.
func (c *lastCopy) begin(s *rulesource.Snapshot, whole bool) *copying {
	if c.path == "" {
		return nil
	}
	w := &copying{c: c, whole: whole}
	if whole {
		if w.err = os.MkdirAll(filepath.Dir(c.path), 0o700); w.err == nil {
			w.file, w.err = os.CreateTemp(filepath.Dir(c.path), filepath.Base(c.path)+".new*")
		}
	} else {
		w.file, w.err = os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if w.err != nil {
		return w
	}
	w.w = bufio.NewWriterSize(w.file, 1<<18)
	if whole {
		w.n += int64(len(copyFormat))
		_, w.err = w.w.WriteString(copyFormat)
	}
	w.put(&frame{Begin: s, Whole: whole})
	return w
}

// put writes a frame. The first error is kept.
func (w *copying) put(f *frame) {
	if w == nil || w.err != nil {
		return
	}
	data, err := json.Marshal(f)
	if err != nil {
		w.err = err
		return
	}
	var lead [8]byte
	binary.BigEndian.PutUint32(lead[:], uint32(len(data)))
	binary.BigEndian.PutUint32(lead[4:], crc32.ChecksumIEEE(data))
	w.n += int64(len(lead) + len(data))
	if _, w.err = w.w.Write(lead[:]); w.err == nil {
		_, w.err = w.w.Write(data)
	}
}

func (w *copying) override(o *rulesource.Override) {
	bare := *o
	bare.Key = ""
	w.put(&frame{Override: &bare, Key: []byte(o.Key)})
}

func (w *copying) plan(p *rulesource.Plan) {
	bare := *p
	bare.Value = ""
	w.put(&frame{Plan: &bare, Key: []byte(p.Value)})
}

// keep ends the group and makes it last: to the disk, then under its name.
func (w *copying) keep() error {
	if w == nil {
		return nil
	}
	w.put(&frame{End: true})
	if w.err == nil {
		w.err = errors.Join(w.w.Flush(), w.file.Sync())
	}
	if w.err == nil && w.whole {
		if w.err = os.Rename(w.file.Name(), w.c.path); w.err == nil {
			w.err = syncDir(filepath.Dir(w.c.path))
		}
		w.c.size, w.c.more = w.n, 0
	} else if w.err == nil {
		w.c.more += w.n
	}
	if w.err != nil {
		w.drop()
		return fmt.Errorf("the copy of the rules, %s: %w", w.c.path, w.err)
	}
	return w.file.Close()
}

// drop throws away what was written. The next copy is a whole one: nothing may
// follow an end that is missing, nor changes a copy that lacks those before.
func (w *copying) drop() {
	if w == nil {
		return
	}
	w.c.more = unusable
	if w.file == nil {
		return
	}
	_ = w.file.Close() // it is thrown away
	if w.whole {
		_ = os.Remove(w.file.Name())
	}
}

// syncDir makes a rename last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
