package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// writeFile replaces a file. It writes a new file beside it and renames that, so that the
// old one stays if the disk is full. It writes directly to what is no regular file, such as
// a pipe, and to a file in a directory where it may not make files.
func writeFile(name string, write func(io.Writer) error) error {
	mode := fs.FileMode(0o666) // less the umask
	if info, err := os.Lstat(name); err == nil {
		if !info.Mode().IsRegular() {
			return writeTo(name, os.O_TRUNC, mode, write)
		}
		mode = info.Mode().Perm()
	}
	beside := name + ".new"
	_ = os.Remove(beside) // a killed process may have left it
	err := writeTo(beside, os.O_EXCL, mode, write)
	if errors.Is(err, fs.ErrPermission) {
		return writeTo(name, os.O_TRUNC, mode, write)
	}
	if err == nil {
		err = os.Rename(beside, name)
	}
	if err != nil {
		_ = os.Remove(beside) // the first error is returned
	}
	return err
}

func writeTo(name string, flag int, mode fs.FileMode, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|flag, mode)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
