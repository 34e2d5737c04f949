//go:build unix

// Package cputime measures the processor time of tests and benchmarks, for ratios within one
// run: unlike the clock on the wall it stands still while others use the machine.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Used returns how much processor time this process has used.
func Used(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
