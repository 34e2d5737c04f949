package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A Clock is the time that a server of a test sees.
type Clock struct {
	Zone          string // such as Europe/Berlin
	file, library string
}

// NewClock returns a clock that shows the machine's time, or skips the test without
// libfaketime.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		t.Skip("libfaketime: not installed")
	}
	c := &Clock{file: filepath.Join(directory(t), "clock"), library: found[0]}
	if err := os.Chmod(filepath.Dir(c.file), 0o755); err != nil { // a server is another user
		t.Fatal(err)
	}
	c.Set(t, 0)
	return c
}

// Set sets it a time ahead of the machine's, which may be negative.
func (c *Clock) Set(t testing.TB, ahead time.Duration) {
	t.Helper()
	next := c.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil { // it is never seen empty
		t.Fatal(err)
	}
}

// environment is that of a program which sees the clock; of the machine's for nil.
func (c *Clock) environment() []string {
	if c == nil {
		return nil
	}
	return append(os.Environ(), "LD_PRELOAD="+c.library, "FAKETIME_TIMESTAMP_FILE="+c.file,
		"FAKETIME_NO_CACHE=1", "FAKETIME_DISABLE_SHM=1", "DONT_FAKE_MONOTONIC=1", "TZ="+c.Zone)
}
