//go:build !unix

package server

// descriptors returns how many sockets this process may have open at once:
// there is no limit of its own here.
func descriptors() int { return 16 << 10 }
