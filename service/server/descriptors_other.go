//go:build !unix

package server

// descriptors returns how many sockets this process may have open at once. These systems
// set no limit for a process.
func descriptors() int { return 16 << 10 }
