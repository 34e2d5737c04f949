package atomicfile

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// lockAgain is how often a lock that another process has is tried again.
const lockAgain = 5 * time.Millisecond

// A HeldError is that of a lock which another process has.
type HeldError struct {
	// By is the process and its host, as far as it is known.
	By string
}

// Error names who has the file, if that is known.
func (e *HeldError) Error() string { return "another process has locked it: " + e.By }

// Lock locks a path for this process until what it returns is closed: a file beside
// the path, which stays, since another process may have opened it. While another
// process has the lock, it waits as long as patience, and then returns a [HeldError].
func Lock(path string, patience time.Duration) (io.Closer, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for begun := time.Now(); ; time.Sleep(lockAgain) {
		held, err := tryLock(f)
		if err != nil {
			_ = f.Close() // nothing was done with it
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
	host, _ := os.Hostname() // only people read it
	_ = f.Truncate(0)        // for people, as what follows
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0)
	return f, nil
}
