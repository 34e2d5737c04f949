package rulescopy

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/atomicfile"
)

const (
	// mostChanges is how many bytes of changes are kept until they are written. Above it,
	// everything is read again.
	mostChanges = 16 << 20
	// firstRest is how long a file that could not be written is left alone. The rest doubles with
	// each failure, up to longestRest, since a whole copy reads everything again.
	firstRest, longestRest = 10 * time.Second, 10 * time.Minute
	// lockWithin is how long another process may take to write.
	lockWithin = 2 * time.Second
	// endedFor is how long after its end an override is still written.
	endedFor = 24 * time.Hour
)

// diskWithin is how long the disk may take for a copy, which is about a second for a million overrides.
var diskWithin = 15 * time.Second

// A writer is what a File knows about its own writes.
type writer struct {
	lacks bool // the file lacks changes, so everything must be read
	rest  time.Duration
	again time.Time    // when a whole copy may be tried
	asked atomic.Int32 // what the disk has yet to answer
}

func (c *File) hangs() bool { return c.asked.Load() > 0 }

// onDisk runs f and waits for it, but no longer than a disk may take: rules must not wait for their
// copy. What takes longer goes on by itself, and nothing else is written until it ends.
func (c *File) onDisk(f func() error) error {
	done := make(chan error, 1)
	c.asked.Add(1)
	go func() {
		err := f()
		c.asked.Add(-1)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(diskWithin):
		return fmt.Errorf("the disk has not answered for %v", diskWithin)
	}
}

// A diskWriter is a file to which each write is bounded.
type diskWriter struct {
	c    *File
	file *os.File
}

// Write implements [io.Writer]. After an error, p is in use for as long as the disk hangs.
func (d diskWriter) Write(p []byte) (n int, err error) {
	err = d.c.onDisk(func() error { _, err := d.file.Write(p); return err })
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// later notes that the file lacks changes, and when it is tried again.
func (c *File) later() {
	c.lacks = true
	c.again = time.Now().Add(c.rest) // at once after the first failure
	c.rest = min(max(2*c.rest, firstRest), longestRest)
}

// Stale reports whether the file lacks changes, so that everything should be read for it. After
// each failed write it stays false for longer.
func (c *File) Stale() bool {
	return c.path != "" && c.lacks && !c.hangs() && !time.Now().Before(c.again)
}

// Retry returns when a file that lacks changes may be tried again. It returns false if the file
// lacks none.
func (c *File) Retry() (at time.Time, lacks bool) {
	if at = c.again; c.hangs() {
		at = time.Now().Add(firstRest)
	}
	return at, c.path != "" && c.lacks
}

// A Writing writes a new file, which replaces the copy when it is kept. A nil Writing does nothing.
type Writing struct {
	c       *File
	s       rulesource.Snapshot
	held    rulesource.Version // the version that the changes follow
	changes map[string]changed // by what the frame is about; nil while everything is written
	size    int                // bytes of changes
	file    *os.File
	w       *bufio.Writer
	frame   []byte
	err     error
}

// A changed is a changed override or plan: its frame, or that it was removed.
type changed struct {
	frame   []byte
	removed bool
}

// Begin begins a copy of everything, or of the changes since the version held. It returns nil if
// nothing is to be written.
func (c *File) Begin(s *rulesource.Snapshot, whole bool, held rulesource.Version) *Writing {
	if c.path == "" || !whole && c.lacks {
		return nil
	}
	if c.hangs() {
		c.lacks = true
		return nil
	}
	w := &Writing{c: c, s: *s, held: held}
	if !whole {
		w.changes = make(map[string]changed)
		return w
	}
	made, late := *w, new(atomic.Bool)
	w.err = c.onDisk(func() error {
		if made.create(); made.err != nil || late.Load() {
			made.drop()
		}
		return made.err
	})
	if late.Store(w.err != nil); w.err != nil {
		return w
	}
	return &made
}

// create creates the new file and writes its beginning.
func (w *Writing) create() {
	if w.err = os.MkdirAll(filepath.Dir(w.c.path), 0o700); w.err == nil {
		w.file, w.err = os.CreateTemp(filepath.Dir(w.c.path), filepath.Base(w.c.path)+newSuffix+"*")
	}
	if w.err == nil {
		w.w = bufio.NewWriterSize(diskWriter{w.c, w.file}, 1<<18)
		_, w.err = w.w.WriteString(format)
	}
	w.write(&Frame{Begin: &w.s, Whole: true})
}

// write writes a frame to the new file. The first error is kept.
func (w *Writing) write(f *Frame) {
	if w.err == nil {
		w.frame, w.err = f.Append(w.frame[:0])
	}
	if w.err == nil {
		_, w.err = w.w.Write(w.frame)
	}
}

// end writes the end of the new file and syncs it to the disk.
func (w *Writing) end() error {
	w.write(&Frame{End: true})
	if w.err == nil {
		w.err = errors.Join(w.w.Flush(), w.file.Sync())
	}
	return w.err
}

// Override writes an override.
func (w *Writing) Override(o *rulesource.Override) { w.put(&Frame{Override: o}, o.Removed) }

// Plan writes a plan.
func (w *Writing) Plan(p *rulesource.Plan) { w.put(&Frame{Plan: p}, p.Plan == "") }

func (w *Writing) put(f *Frame, removed bool) {
	switch {
	case w == nil || w.err != nil:
	case w.changes == nil:
		w.write(f)
	default:
		one := changed{removed: removed}
		one.frame, w.err = f.Append(nil)
		if w.size += len(one.frame); w.size > mostChanges {
			w.err = fmt.Errorf("more than %d MiB of changes at once: everything is read", mostChanges>>20)
		}
		w.changes[f.of()] = one
	}
}

// of identifies the override or plan of a frame, of which there may be several frames.
func (f *Frame) of() string {
	if o := f.Override; o != nil {
		return "o" + o.Rule + "\x00" + o.Key
	}
	return "p" + f.Plan.Attribute + "\x00" + f.Plan.Value
}

// Keep replaces the copy with the new file, unless another process has written a copy meanwhile
// that is as new.
func (w *Writing) Keep() error {
	if w == nil {
		return nil
	}
	c, err := w.c, w.err
	if err == nil {
		err = c.onDisk(w.replace)
	} else {
		w.Drop()
	}
	if err != nil {
		c.later()
		return fmt.Errorf("the copy of the rules, %s: %w", c.path, err)
	}
	c.lacks, c.rest, c.again = false, 0, time.Time{}
	return nil
}

// replace writes the new file and puts it in place of the old one.
func (w *Writing) replace() error {
	defer w.drop() // after publish, the file has another name and stays
	if w.changes == nil {
		if err := w.end(); err != nil { // before the lock, so that others need not wait for the disk
			return err
		}
	}
	return w.c.locked(w.publish)
}

// locked runs f while no other process writes the file.
func (c *File) locked(f func() error) error {
	lock, err := atomicfile.Lock(c.path, lockWithin)
	if err != nil {
		return err
	}
	defer lock.Close() // also ends the lock
	return f()
}

// errBegin stops a read once the begin has come.
var errBegin = errors.New("it has begun")

// publish replaces the copy with the new file. If the new file has only changes, it first merges
// them with the old one. The caller holds the lock.
func (w *Writing) publish() error {
	var was rulesource.Version
	_, err := w.c.scan(func(s *rulesource.Snapshot) error { was = s.Version; return errBegin }, nil)
	there := errors.Is(err, errBegin)
	switch {
	case !there && w.changes != nil:
		return err
	case there && was.Follows(w.s.Version) && (was != w.s.Version || w.changes != nil):
		return nil // another process was faster
	case there && !w.s.Version.Follows(was):
		return fmt.Errorf("it holds revision %d, change %d, which this does not follow", was.Revision, was.Change)
	case w.changes != nil && !was.Follows(w.held):
		return errors.New("it lacks changes: everything is read")
	}
	if w.changes != nil {
		if err := w.merge(); err != nil {
			return err
		}
	}
	if err := os.Rename(w.file.Name(), w.c.path); err != nil {
		return err
	}
	RemoveLeft(w.c.path + newSuffix)
	return syncDir(filepath.Dir(w.c.path))
}

// merge writes the contents of the old file with the changes applied.
func (w *Writing) merge() error {
	ended := time.Now().Add(-endedFor)
	_, err := w.c.scan(func(s *rulesource.Snapshot) error {
		if w.s.Document == nil { // the rules have not changed
			w.s.Document, w.s.Name, w.s.Hash = s.Document, s.Name, s.Hash
		}
		w.create()
		return w.err
	}, func(f *Frame) error {
		_, stale := w.changes[f.of()]
		if o := f.Override; !stale && o != nil {
			stale = !o.Expires.IsZero() && o.Expires.Before(ended)
		}
		if !stale {
			w.write(f)
		}
		return w.err
	})
	if err != nil {
		return err
	}
	for _, one := range w.changes {
		if !one.removed && w.err == nil {
			_, w.err = w.w.Write(one.frame)
		}
	}
	return w.end()
}

// Drop removes the new file, unless the disk hangs: then it is left for [RemoveLeft].
func (w *Writing) Drop() {
	if w != nil && !w.c.hangs() {
		w.drop()
	}
}

func (w *Writing) drop() {
	if w.file != nil {
		_ = w.file.Close() // the file is removed, or was synced
		_ = os.Remove(w.file.Name())
	}
}

// newSuffix is between the name of a copy and the number of a new file.
const newSuffix = ".new"

// leftFor is how old a new file is when it counts as left behind.
const leftFor = time.Hour

// RemoveLeft removes new files of a path to which nothing was written for an hour: processes that
// were killed while they wrote have left them.
func RemoveLeft(path string) {
	dir, prefix := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return // the next copy tries again
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

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
