package server_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/service/server"
)

// TestBalancedConns: the clients that a balancer names are held to what one address may
// have, of IPv6 the /64, and a path of a Unix socket is no address.
func TestBalancedConns(t *testing.T) {
	conns, ask := holding(t, server.ConnsOptions{Max: 40, Balancers: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Log: slog.New(slog.DiscardHandler)})
	var open []net.Conn
	for _, c := range []struct {
		header string
		n, in  int
	}{
		{"PROXY TCP4 203.0.113.66 192.0.2.1 1 2\r\n", 14, 10},
		{"PROXY TCP6 2001:db8::%x 2001:db8:f::1 1 2\r\n", 14, 10},
		{"PROXY TCP4 203.0.113.7 192.0.2.1 1 2\r\n", 1, 1},
		{"\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8203.0.113.7:1" + string(make([]byte, 216-13)), 1, 1},
		{"", 1, 0},
	} {
		in, last := 0, ""
		for i := range c.n {
			header := c.header
			if strings.Contains(header, "%x") {
				header = fmt.Sprintf(header, i+1)
			}
			conn, said := ask("127.0.0.1", header)
			if said != "" {
				open = append(open, conn)
				last = said
				in++
			}
		}
		if in != c.in {
			t.Errorf("%.20q: %d of %d are let in, want %d", c.header, in, c.n, c.in)
		}
		if _, err := netip.ParseAddrPort(last); len(c.header) > 200 && err == nil {
			t.Errorf("a Unix socket has the address %s", last)
		}
	}
	for _, c := range open {
		_ = c.Close() // this is the point
	}
	for conns.Count() > 0 {
		time.Sleep(time.Millisecond)
	}
	if _, said := ask("127.0.0.1", "PROXY TCP4 203.0.113.66 192.0.2.1 1 2\r\n"); said != "203.0.113.66:1" {
		t.Errorf("when all have gone: %q", said)
	}
}

// TestStrangerBesideBalancers: a peer that is no balancer is not waited for.
func TestStrangerBesideBalancers(t *testing.T) {
	below, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := server.NewConns(server.ConnsOptions{Balancers: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}, Log: slog.New(slog.DiscardHandler)}).Listen(below)
	defer ln.Close()
	for _, says := range []string{"", "PROXY TCP4 203.0.113.66 192.0.2.1 1 2\r\n", "\r\n\r\n\x00\r\nQUIT\n", "GET / HTTP/1.1\r\n"} {
		c, err := net.Dial("tcp4", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, says) // it is read below
		got, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		_ = got.SetReadDeadline(time.Now().Add(time.Millisecond))
		if says != "" {
			_ = got.SetReadDeadline(time.Now().Add(30 * time.Second))
		}
		if got.RemoteAddr().String() != c.LocalAddr().String() { // with a header to wait for, it would take 5 s
			t.Errorf("the peer is %v", got.RemoteAddr())
		}
		n, err := got.Read(make([]byte, 100))
		if forbidden := says != "" && says[0] != 'G'; forbidden != (err != nil && n == 0) && says != "" {
			t.Errorf("%q: %d bytes, %v", says, n, err)
		} else if late, ok := err.(net.Error); says == "" && (!ok || !late.Timeout()) {
			t.Errorf("a peer that says nothing is held past its deadline: %v", err)
		}
	}
}
