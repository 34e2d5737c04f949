package rulescopy

import (
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file for this process, or fails at once. Closing the file ends
// the lock.
func tryLock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
}
