//go:build !windows

package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file for this process, or reports that another process holds it. Closing the file
// ends the lock.
func tryLock(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
