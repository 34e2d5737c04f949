package atomicfile

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// lockAgain is how often a lock that is held is tried again.
const lockAgain = 5 * time.Millisecond

// A HeldError says that another process holds a lock.
type HeldError struct {
	// By names the process and its host, if they are known.
	By string
}

// Error names the process, if it is known.
func (e *HeldError) Error() string { return "another process has locked it: " + e.By }

// Lock locks a path for this process until the returned Closer is closed. The lock is on a file
// beside the path, which stays, since another process may have opened it. While another process
// holds the lock, Lock waits for up to patience, and then returns a [HeldError].
func Lock(path string, patience time.Duration) (io.Closer, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for begun := time.Now(); ; time.Sleep(lockAgain) {
		held, err := tryLock(f)
		if err != nil {
			_ = f.Close() // it was not used
			return nil, err
		}
		if !held {
			break
		}
		if time.Since(begun) >= patience {
			by, _ := io.ReadAll(io.LimitReader(f, 200)) // an error leaves it unknown
			_ = f.Close()                               // it was only read
			return nil, &HeldError{strings.TrimSpace(string(by))}
		}
	}
	host, _ := os.Hostname() // the name is only for people, so an error is ignored
	_ = f.Truncate(0)        // the text is for people, so errors are ignored
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0)
	return f, nil
}
