// Package await has tests wait for what happens beside them.
package await

import (
	"testing"
	"time"
)

// patience is how long a test waits for what takes a moment on a machine that has
// nothing else to do.
const patience = 3 * time.Minute

// Until returns once something holds, of which it looks now and then. What never came is
// a failure.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}
