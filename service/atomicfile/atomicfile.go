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

// beside is appended to the name of a file while it is being written. There is one such name for
// each path, so that a killed process leaves one file behind, which the next write replaces.
const beside = ".new"

// ErrUnsynced is the error of a Write that has replaced the file, but could not sync the directory:
// a loss of power may bring the old file back.
var ErrUnsynced = errors.New("written, but a loss of power may undo it")

// Write replaces a file by what the function write writes. It writes a new file beside the path,
// syncs it, and renames it. After an error other than [ErrUnsynced], or a kill at any moment, the
// file is as it was. Only its owner may read it. One process at a time may write a path. If the
// path is a pipe, a device or a directory, Write returns an error and leaves it.
func Write(path string, write func(io.Writer) error) (err error) {
	dir, err := os.Open(filepath.Dir(path)) // before the rename, since after it a failure would be too late
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
		_ = os.Remove(path + beside) // its contents are not wanted
		return err
	}
	if err := dir.Sync(); err != nil { // makes the rename durable
		return fmt.Errorf("%w: %w", ErrUnsynced, err)
	}
	return nil
}

// Try returns the error with which Write would fail to begin, without writing the path. It creates
// a file of a different name, since a process may be writing the path.
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

// create creates the new file beside a path. It removes and never opens what is there: a pipe would
// wait for its reader, and a link leads elsewhere.
func create(path string) (*os.File, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	if err := os.Remove(path + beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path+beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// regular returns an error if a path is something other than a file or nothing.
func regular(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", path)
	}
	return nil
}
