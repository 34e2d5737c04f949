//go:build !windows

package rulescopy

import (
	"os"
	"syscall"
)

// tryLock locks a file for this process, or fails at once. Closing the file ends
// the lock.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
