package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
)

// A Clock is the time that a server sees.
type Clock struct {
	Zone          string // such as Europe/Berlin
	file, library string
}

// NewClock returns a clock that shows the machine's time. Without libfaketime it skips the test.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		need.Missing(t, "libfaketime")
	}
	c := &Clock{file: filepath.Join(directory(t), "clock"), library: found[0]}
	if err := os.Chmod(filepath.Dir(c.file), 0o755); err != nil { // a server runs as another user
		t.Fatal(err)
	}
	c.Set(t, 0)
	return c
}

// Set sets the clock ahead of the machine's by a time, which may be negative.
func (c *Clock) Set(t testing.TB, ahead time.Duration) {
	t.Helper()
	next := c.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil { // so that the file is never seen empty
		t.Fatal(err)
	}
}

// environment returns the environment of a program that sees the clock. A nil clock is the
// machine's.
func (c *Clock) environment() []string {
	if c == nil {
		return nil
	}
	return append(os.Environ(), "LD_PRELOAD="+c.library, "FAKETIME_TIMESTAMP_FILE="+c.file,
		"FAKETIME_NO_CACHE=1", "FAKETIME_DISABLE_SHM=1", "DONT_FAKE_MONOTONIC=1", "TZ="+c.Zone)
}
