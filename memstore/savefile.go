package memstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// SaveFile writes a snapshot to a file, whole or not at all: it writes a second file
// beside it, syncs that, and renames it. The file is readable by its owner alone,
// because it holds the store's secret. A path to a pipe, a device or a directory is an
// error. A process that is killed meanwhile leaves the second file, whose name is
// path.saving- and digits.
func (s *Store) SaveFile(path string) (err error) {
	if err := regular(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".saving-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err = s.Save(f); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// regular returns an error unless a path is a regular file. To open a pipe would wait
// for its other end, and to read a device may never end.
func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("memstore: %s: not a regular file", path)
	}
	return err
}

// LoadFile is [Store.Load] from a file. If there is no file, the error matches
// fs.ErrNotExist. A path that is no regular file is not opened.
func (s *Store) LoadFile(path string) error {
	if err := regular(path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.Load(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
