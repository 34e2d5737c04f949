package library

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// look returns the thread that the caller is on and for how long that has been
// ready to run while others had the processor. What is timed leaves this out,
// so that a figure is about the contender and not about what else the machine
// does; a wait for a lock stays in.
func look() (t turn) {
	t.thread = syscall.Gettid()
	text, err := os.ReadFile("/proc/thread-self/schedstat") // on the processor, waited, slices
	if fields := bytes.Fields(text); err == nil && len(fields) == 3 {
		if ns, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
			t.waited = time.Duration(ns)
		}
	}
	return t
}

// processorTime returns what the process has used of all processors.
func processorTime() time.Duration {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// processorTimeOf returns what another process has used of all processors.
func processorTimeOf(pid int) time.Duration {
	var used unix.Timespec
	clock := int32(^pid<<3 | 2) // CPUCLOCK_SCHED of the process, see clock_getcpuclockid(3)
	if unix.ClockGettime(clock, &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}
