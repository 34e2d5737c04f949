package proxy

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sinceData returns a function that says how long ago the last byte of a connection came; nil if the
// kernel does not know.
func sinceData(conn net.Conn) func() (time.Duration, bool) {
	return tcpInfo(conn, func(i *unix.TCPInfo) time.Duration { return time.Duration(i.Last_data_recv) * time.Millisecond })
}

// acknowledged returns a function that says how many bytes the other side of a connection has
// acknowledged; nil if the kernel does not know.
func acknowledged(conn net.Conn) func() (int64, bool) {
	return tcpInfo(conn, func(i *unix.TCPInfo) int64 { return int64(i.Bytes_acked) })
}

// hungUp returns a function that says whether the other side has ended a connection, even while bytes
// from it are unread; nil if the kernel does not know.
func hungUp(conn net.Conn) func() (bool, bool) {
	return tcpInfo(conn, func(i *unix.TCPInfo) bool { return i.State != unix.BPF_TCP_ESTABLISHED })
}

// tcpInfo returns a function that reads a field of the kernel's TCP_INFO.
func tcpInfo[T any](conn net.Conn, field func(*unix.TCPInfo) T) func() (T, bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return func() (value T, ok bool) {
		err := raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
			if err == nil {
				value, ok = field(info), true
			}
		})
		return value, ok && err == nil
	}
}
