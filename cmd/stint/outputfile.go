package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// writeFile writes a file beside the one that it replaces, which stays if there is too
// little room. What is no regular file, such as a pipe, is written to, and so is a file
// in a directory of somebody else.
func writeFile(name string, write func(io.Writer) error) error {
	mode := fs.FileMode(0o666) // less the umask
	if info, err := os.Lstat(name); err == nil {
		if !info.Mode().IsRegular() {
			return writeTo(name, os.O_TRUNC, mode, write)
		}
		mode = info.Mode().Perm()
	}
	beside := name + ".new"
	_ = os.Remove(beside) // of a process that was killed
	err := writeTo(beside, os.O_EXCL, mode, write)
	if errors.Is(err, fs.ErrPermission) {
		return writeTo(name, os.O_TRUNC, mode, write)
	}
	if err == nil {
		err = os.Rename(beside, name)
	}
	if err != nil {
		_ = os.Remove(beside) // it is thrown away
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
