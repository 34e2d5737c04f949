package main

import (
	"syscall"
	"time"
)

// processorTime is what this process has had of the processor. Between two
// decisions it says how long they were put off by what else the process does,
// whatever other processes do meanwhile: the part that needs it runs on one
// thread of Go code.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
