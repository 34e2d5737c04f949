package memstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// SaveFile writes a snapshot to a file, whole or not at all: it is written
// beside it, synced, and renamed. The file is readable by its owner alone,
// because it holds the store's secret. A pipe, a device or a directory there is
// an error. What saves that were killed over an hour ago have left beside it
// is removed.
func (s *Store) SaveFile(path string) (err error) {
	if err := regular(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+saving+"*")
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
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	sweep(path)
	return nil
}

const (
	// saving stands in the name of a file until it is whole, before digits.
	saving = ".saving-"
	// abandoned is how old such a file is when its save must have been killed:
	// others may be saving too.
	abandoned = time.Hour
)

// sweep removes what saves have left that were killed long before the file was
// saved, by the clock of its disk. What it cannot remove
// stays for the next one.
func sweep(path string) {
	whole, err := os.Stat(path)
	if err != nil {
		return
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, file := range files {
		digits, ours := strings.CutPrefix(file.Name(), filepath.Base(path)+saving)
		if !ours || digits == "" || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		if info, err := file.Info(); err == nil && info.Mode().IsRegular() && whole.ModTime().Sub(info.ModTime()) > abandoned {
			_ = os.Remove(filepath.Join(filepath.Dir(path), file.Name()))
		}
	}
}

// regular reports why a path is no regular file: to open a pipe would wait for
// its other end, and a device may never end.
func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("memstore: %s: not a regular file", path)
	}
	return err
}

// LoadFile is [Store.Load] from a file. A file that is not there matches
// fs.ErrNotExist; what is no regular file is not opened.
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
