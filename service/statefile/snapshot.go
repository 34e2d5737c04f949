package statefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/atomicfile"
)

// A Snapshot keeps the memory of a process in a file, so that what keys have used
// survives a restart. Its methods may be called from many goroutines at once.
type Snapshot struct {
	path  string
	store *memstore.Store
	log   *slog.Logger

	mu     sync.Mutex // one save at a time
	lock   io.Closer  // of the file; nil while it is not had
	failed bool       // the last one
	saved  time.Time  // when the last one that worked began; zero for none
}

// OpenSnapshot loads a file into a store that has bound no limits yet. A file that is
// not there is an empty one, but its directory must be. One that cannot be read
// is an error, and stays as it is.
func OpenSnapshot(path string, store *memstore.Store, log *slog.Logger) (*Snapshot, error) {
	f := &Snapshot{path: path, store: store, log: log}
	info, err := os.Stat(filepath.Dir(path))
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is no directory", filepath.Dir(path))
	}
	err = f.hold()
	if err == nil {
		err = atomicfile.Try(path)
	}
	if err != nil {
		f.failed = true
		log.Error("snapshot: it cannot be saved", "file", path, "error", err,
			"hint", "--snapshot FILE names a place that can be written, and another one for each process")
	}
	err = store.LoadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		log.Info("snapshot: none yet: keys start with nothing used", "file", path)
		return f, nil
	case errors.Is(err, memstore.ErrSnapshot):
		err = fmt.Errorf("%w; the file stays as it is: put a good one in its place, or move it away to start with nothing used", err)
		return nil, errors.Join(err, f.Close())
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	if info, err := os.Stat(path); err == nil {
		log.Info("snapshot: loaded", "file", path, "bytes", info.Size(), "of", info.ModTime().UTC())
	}
	return f, nil
}

// hold locks the file, unless this process has it locked; it fails while another one
// has. The caller has the lock of the Snapshot, or is alone.
func (f *Snapshot) hold() (err error) {
	if f.lock != nil {
		return nil
	}
	f.lock, err = atomicfile.Lock(f.path, 0)
	if held, ok := errors.AsType[*atomicfile.HeldError](err); ok {
		return held
	}
	return nil // a disk that cannot be written says so by itself, and one may be without locks
}

// Close lets another process have the file.
func (f *Snapshot) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}

// Run saves once a period, until ctx is done. What fails is logged, once until
// it works again.
func (f *Snapshot) Run(ctx context.Context, period time.Duration) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		_ = f.Save() // it is logged
	}
}

// Save saves now. The file is whole, whatever happens meanwhile: this state or
// the one before. The store is locked a shard at a time, while that is copied.
func (f *Snapshot) Save() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	began := time.Now()
	err := f.hold()
	if err == nil {
		err = atomicfile.Write(f.path, f.store.Save)
	}
	switch {
	case err != nil && !f.failed:
		f.log.Error("snapshot: not saved, the one before stays", "file", f.path, "error", err)
	case err == nil && f.failed:
		f.log.Info("snapshot: saved again", "file", f.path)
	}
	if f.failed = err != nil; f.failed {
		return fmt.Errorf("snapshot: %w", err)
	}
	f.saved = began
	return nil
}

// Saved returns of when the last snapshot is that this process saved; zero for
// none.
func (f *Snapshot) Saved() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saved
}
