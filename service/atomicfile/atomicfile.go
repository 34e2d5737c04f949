// Package atomicfile writes files whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// beside is what the name of a file ends with until it is whole. There is one
// such file for each path, so that a process that is killed leaves one behind, which
// the next write replaces.
const beside = ".new"

// ErrUnsynced is the error of a Write that has put the new file in place, where the
// directory could not be synced: a loss of power may bring the old file back.
var ErrUnsynced = errors.New("written, but a loss of power may undo it")

// Write puts what write writes in the place of a file: beside it, synced, then
// renamed. After an error other than [ErrUnsynced], or a kill at any moment, the
// file is as it was. Its owner alone may read it. One process at a time writes a
// path. A pipe, a device or a directory there is an error, and stays.
func Write(path string, write func(io.Writer) error) (err error) {
	dir, err := os.Open(filepath.Dir(path)) // after the rename it would be too late to fail
	if err != nil {
		return err
	}
	defer dir.Close() // it is only synced
	f, err := create(path)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+beside, path)
	}
	if err != nil {
		_ = os.Remove(path + beside) // it is thrown away
		return err
	}
	if err := dir.Sync(); err != nil { // so that the rename lasts
		return fmt.Errorf("%w: %w", ErrUnsynced, err)
	}
	return nil
}

// Try reports why Write could not begin to write a path, without writing it. It
// makes a file of another name, since a process may be writing the path.
func Try(path string) error {
	if err := regular(path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir.Name(), filepath.Base(path)+".try-")
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	return errors.Join(dir.Close(), f.Close(), os.Remove(f.Name()))
}

// create opens a new file beside a path. What lies there is replaced, never
// opened: a pipe would wait for its reader, and a link leads elsewhere.
func create(path string) (*os.File, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	if err := os.Remove(path + beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path+beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// regular reports why a path cannot become a whole file: something else is there.
func regular(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", path)
	}
	return nil
}
