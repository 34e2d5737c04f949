package rulescopy

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/atomicfile"
)

const (
	// mostAdded is how much may be added to a file beyond its own size before it
	// is written anew, and how much one group may add.
	mostAdded = 16 << 20
	// firstRest is how long a file is left alone that could not be written;
	// doubled at each further time, up to longestRest. A whole copy reads
	// everything anew.
	firstRest, longestRest = 10 * time.Second, 10 * time.Minute
	// lockWithin is how long another process may take to write.
	lockWithin = 2 * time.Second
)

// A writer is what a File knows of what it has written.
type writer struct {
	written position // where what this process knows of ends
	whole   int64    // size of the file when it was last written as a whole
	lacks   bool     // changes that nothing can be added behind
	rest    time.Duration
	again   time.Time // when a whole copy may be tried
}

// Stale reports whether the file should be written as a whole: it lacks changes,
// or so much was added. While the file cannot be written, it is false for longer
// and longer.
func (c *File) Stale() bool {
	return c.path != "" && c.due() && !time.Now().Before(c.again)
}

// Retry returns when a file that lacks changes may be tried again; false if it
// lacks none.
func (c *File) Retry() (time.Time, bool) { return c.again, c.path != "" && c.lacks }

func (c *File) due() bool { return c.lacks || c.written.end > 2*c.whole+mostAdded }

// A Writing writes what it is handed into the copy. It is thrown away unless it
// is kept. A nil Writing does nothing.
type Writing struct {
	c     *File
	s     rulesource.Snapshot
	held  rulesource.Version // that changes are since
	whole bool
	file  *os.File // of a whole copy: the new one
	w     *bufio.Writer
	added []byte // changes; of a whole copy the last frame
	rules int    // bytes of them that are the begin, with a document
	n     int64
	err   error
}

// Begin begins a group: everything, for a new file beside the old, or what has
// changed since the version held. It returns nil if nothing is to be written.
func (c *File) Begin(s *rulesource.Snapshot, whole bool, held rulesource.Version) *Writing {
	if c.path == "" || !whole && c.lacks {
		return nil
	}
	w := &Writing{c: c, s: *s, held: held, whole: whole}
	if whole {
		if w.err = os.MkdirAll(filepath.Dir(c.path), 0o700); w.err == nil {
			w.file, w.err = os.CreateTemp(filepath.Dir(c.path), filepath.Base(c.path)+newSuffix+"*")
		}
		if w.err != nil {
			return w
		}
		w.w = bufio.NewWriterSize(w.file, 1<<18)
		w.n = int64(len(format))
		_, w.err = w.w.WriteString(format)
	}
	w.put(&Frame{Begin: s, Whole: whole})
	return w
}

// put writes a frame. The first error is kept.
func (w *Writing) put(f *Frame) {
	if w == nil || w.err != nil {
		return
	}
	if !w.whole {
		if w.added, w.err = f.Append(w.added); f.Begin != nil {
			w.rules = len(w.added)
		}
		if w.err == nil && len(w.added)-w.rules > mostAdded {
			w.err = fmt.Errorf("more than %d MiB of changes at once: it is written anew", mostAdded>>20)
		}
		return
	}
	if w.added, w.err = f.Append(w.added[:0]); w.err != nil {
		return
	}
	w.n += int64(len(w.added))
	_, w.err = w.w.Write(w.added)
}

// Override writes an override.
func (w *Writing) Override(o *rulesource.Override) {
	if w != nil {
		w.put(&Frame{Override: o})
	}
}

// Plan writes a plan.
func (w *Writing) Plan(p *rulesource.Plan) {
	if w != nil {
		w.put(&Frame{Plan: p})
	}
}

// Keep ends the group and makes it last: to the disk, then under its name. What
// another process has written meanwhile stays if it is as new.
func (w *Writing) Keep() error {
	if w == nil {
		return nil
	}
	w.put(&Frame{End: true})
	if w.err == nil && w.whole {
		w.err = errors.Join(w.w.Flush(), w.file.Sync())
	}
	if w.err == nil {
		w.err = w.c.locked(w.publish)
	}
	if err := w.err; err != nil {
		w.Drop()
		c := w.c
		c.lacks = true
		c.again = time.Now().Add(c.rest) // at once after the first failure
		c.rest = min(max(2*c.rest, firstRest), longestRest)
		return fmt.Errorf("the copy of the rules, %s: %w", c.path, err)
	}
	w.c.rest, w.c.again = 0, time.Time{}
	if w.whole {
		return w.file.Close()
	}
	return nil
}

// locked runs f while no other process writes the file.
func (c *File) locked(f func() error) error {
	lock, err := atomicfile.Lock(c.path, lockWithin)
	if err != nil {
		return err
	}
	defer lock.Close() // which ends the lock
	return f()
}

// publish puts the group in its place. The caller has the lock.
func (w *Writing) publish() error {
	c := w.c
	at, _, err := c.check(c.written)
	switch {
	case err != nil && !w.whole:
		return err
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		at = position{} // what is there is no copy
	case err == nil && at.s.Version.Follows(w.s.Version) && at.s.Version != (rulesource.Version{}):
		if c.written = at.bare(); at.s.Version != w.s.Version || !w.whole { // another process was quicker
			if w.whole {
				_ = os.Remove(w.file.Name())
			}
			c.lacks = false
			return nil
		}
	case err == nil && !w.s.Version.Follows(at.s.Version):
		return fmt.Errorf("it holds revision %d, change %d, which this does not follow", at.s.Version.Revision, at.s.Version.Change)
	}
	if w.whole {
		return w.rename()
	}
	if !at.s.Version.Follows(w.held) {
		return errors.New("it lacks changes: it is written anew")
	}
	return w.add(at)
}

// rename puts a whole copy under the name of the file.
func (w *Writing) rename() error {
	c := w.c
	if err := os.Rename(w.file.Name(), c.path); err != nil {
		return err
	}
	info, err := os.Stat(c.path)
	if err == nil {
		err = syncDir(filepath.Dir(c.path))
	}
	c.written, c.whole, c.lacks = position{info, w.n, w.s}.bare(), w.n, false
	RemoveLeft(c.path + newSuffix)
	return err
}

// newSuffix is between the name of a copy and the number of one that is written.
const newSuffix = ".new"

// leftFor is how old a file is before it counts as left behind.
const leftFor = time.Hour

// RemoveLeft removes files of this path and a number if nothing was written to them for
// an hour: processes that were killed while they wrote them left them.
func RemoveLeft(path string) {
	dir, prefix := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return // it is tried again at the next whole copy
	}
	for _, entry := range entries {
		number, ok := strings.CutPrefix(entry.Name(), prefix)
		if !ok || strings.Trim(number, "0123456789") != "" || !entry.Type().IsRegular() {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > leftFor {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// add writes changes behind what the file holds. An end that a crash has torn is
// cut off first.
func (w *Writing) add(at position) error {
	file, err := os.OpenFile(w.c.path, os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = file.Truncate(at.end)
	if err == nil {
		if _, err = file.WriteAt(w.added, at.end); err == nil {
			err = file.Sync()
		}
		if err != nil {
			err = errors.Join(err, file.Truncate(at.end))
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if w.s.Document == nil {
		w.s.Name, w.s.Hash = at.s.Name, at.s.Hash
	}
	w.c.written = position{at.file, at.end + int64(len(w.added)), w.s}.bare()
	return nil
}

// Drop throws away what was written.
func (w *Writing) Drop() {
	if w != nil && w.file != nil {
		_ = w.file.Close() // it is thrown away
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
