package freeport

import (
	"fmt"
	"os"
	"syscall"
)

// keep binds a socket and does not listen on it. The system then assigns the port
// to no other socket, unless a program asks for it by number with SO_REUSEADDR.
func keep() (addr string, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	release = func() { _ = syscall.Close(fd) }
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	bound, err2 := syscall.Getsockname(fd)
	if err == nil {
		err = err2
	}
	if err != nil {
		release()
		return "", nil, fmt.Errorf("a port for a test: %w", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port), release, nil
}
