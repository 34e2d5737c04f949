//go:build unix

package server

import "syscall"

// descriptors returns how many descriptors this process may have open at once.
func descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fewDescriptors
	}
	return int(min(uint64(limit.Cur), manyDescriptors)) //nolint:unconvert // it is signed on FreeBSD
}

const (
	fewDescriptors  = 1 << 10
	manyDescriptors = 1 << 20 // some systems say that there is no limit
)
