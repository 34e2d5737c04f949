package freeport_test

import (
	"net"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// TestAddr listens at an address again and again: nothing else answers there in
// between, and no other socket is given the port.
func TestAddr(t *testing.T) {
	addr := freeport.Addr(t)
	for range 3 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Fatal("somebody answers where nobody listens")
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
	seen := make(map[string]bool)
	for range 100 {
		addr := freeport.Addr(t)
		if seen[addr] {
			t.Errorf("%s twice", addr)
		}
		seen[addr] = true
	}
}
