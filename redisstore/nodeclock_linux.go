package redisstore

import (
	"syscall"
	"unsafe"
)

// sinceBoot returns CLOCK_BOOTTIME in nanoseconds, or 0 if the kernel has none.
func sinceBoot() int64 {
	const boottime = 7
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return 0
	}
	return t.Nano()
}
