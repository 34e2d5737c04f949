// Package freeport keeps TCP ports on loopback for the servers of tests.
package freeport

import (
	"net"
	"testing"
)

// Addr returns 127.0.0.1 and a port that no other program gets until the test
// ends, while a server that sets SO_REUSEADDR, as about all do, may listen there,
// again and again. Until one does, connections are refused.
//
// A port that was only found to be free may be taken a moment later, also as the near
// end of a connection. On systems other than Linux Addr does no more than that.
func Addr(t testing.TB) string {
	t.Helper()
	addr, release, err := Keep()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}

// Keep is Addr for a program, which calls release when it needs the port no more.
func Keep() (addr string, release func(), err error) { return keep() }

// Listen returns a listener at a free port, which is closed when the test ends.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Port is Addr without the address.
func Port(t testing.TB) string {
	t.Helper()
	_, port, err := net.SplitHostPort(Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}
