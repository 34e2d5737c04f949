//go:build !unix

package cputime

import (
	"testing"
	"time"
)

// Used skips the test: only Unix systems are asked.
func Used(tb testing.TB) time.Duration {
	tb.Helper()
	tb.Skip("no processor time on this system")
	return 0
}
