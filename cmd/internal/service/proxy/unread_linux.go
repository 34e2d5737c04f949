package proxy

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sinceData returns what says how long ago the last byte of a connection came,
// as the kernel knows it; nil if it does not.
func sinceData(conn net.Conn) func() (time.Duration, bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return func() (since time.Duration, ok bool) {
		err := raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
			if err == nil {
				since, ok = time.Duration(info.Last_data_recv)*time.Millisecond, true
			}
		})
		return since, ok && err == nil
	}
}
