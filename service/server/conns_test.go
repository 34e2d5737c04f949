package server_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/service/server"
)

// holding accepts connections within bounds and answers the first byte of each with its peer's address,
// as net/http asks for it first. ask opens one from an address, with a header of a balancer.
func holding(t *testing.T, o server.ConnsOptions) (conns *server.Conns, ask func(from, header string) (c net.Conn, peer string)) {
	t.Helper()
	below, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns = server.NewConns(o)
	ln := conns.Listen(below)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				peer := c.RemoteAddr().String()
				if _, err := c.Read(make([]byte, 1)); err == nil {
					_, _ = fmt.Fprintln(c, peer)  // who is gone needs no answer
					_, _ = io.Copy(io.Discard, c) // until it hangs up
				}
				_ = c.Close()
				_ = c.Close() // counts once
			}()
		}
	}()
	return conns, func(from, header string) (c net.Conn, peer string) {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := dialer.Dial("tcp4", ln.Addr().String())
		if err != nil {
			t.Skip("no other loopback address here: ", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // or the test hangs
		_, _ = fmt.Fprintf(c, "%sx", header)
		_, _ = fmt.Fscanln(c, &peer) // what is closed says nothing
		return c, peer
	}
}

// TestConns opens connections up to the bounds, beyond them, and again once
// some have gone.
func TestConns(t *testing.T) {
	bounds, ask := holding(t, server.ConnsOptions{
		Max: 4, PerAddress: 2, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")}, Log: slog.New(slog.DiscardHandler),
	})
	open := func(from string) (c net.Conn, in bool) {
		t.Helper()
		c, said := ask(from, "")
		return c, said != ""
	}
	var conns []net.Conn
	for i, step := range []struct {
		from string
		in   bool
	}{
		{"127.0.0.1", true}, {"127.0.0.1", true}, {"127.0.0.1", false},
		{"127.0.0.9", true}, {"127.0.0.9", true}, {"127.0.0.2", false},
	} {
		c, in := open(step.from)
		conns = append(conns, c)
		if in != step.in {
			t.Errorf("connection %d of %s: in %v, want %v", i, step.from, in, step.in)
		}
	}
	for _, c := range conns[:2] {
		_ = c.Close() // this is the point
	}
	for bounds.Count() > 2 {
		time.Sleep(time.Millisecond)
	}
	if c, in := open("127.0.0.2"); !in {
		t.Error("a connection is refused although others have gone")
	} else {
		_ = c.Close()
	}
	for _, c := range conns {
		_ = c.Close()
	}
	for bounds.Count() > 0 {
		time.Sleep(time.Millisecond)
	}
	for round := range 3 { // later, as at first: each address has its share again, and all have theirs
		var later []net.Conn
		for _, from := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"} {
			c, in := open(from)
			later = append(later, c)
			if !in {
				t.Errorf("round %d: a connection of %s is refused although all have gone", round, from)
			}
		}
		if c, in := open("127.0.0.3"); in {
			t.Errorf("round %d: a connection beyond the bound is let in", round)
		} else {
			_ = c.Close()
		}
		for _, c := range later {
			_ = c.Close()
		}
		for bounds.Count() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if _, most := server.NewConns(server.ConnsOptions{Max: 400, Log: slog.New(slog.DiscardHandler)}).Bounds(); most != 100 {
		t.Errorf("%d of one address, want a quarter of all", most)
	}
}

// TestSparing logs a thousand lines of a cause: a few are written, and later
// one that says how many were not.
func TestSparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := server.ErrorLog(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 1000 {
			log.Printf("http: TLS handshake error from 192.0.2.%d:%d: first record %q", i%250, i, string(rune('a'+i)))
		}
		log.Print("another cause")
		if got := strings.Count(out.String(), "\n"); got != 6 {
			t.Errorf("%d lines, want 5 and 1:\n%s", got, out.String())
		}
		out.Reset()
		time.Sleep(11 * time.Second)
		log.Printf("http: TLS handshake error from 192.0.2.1:1: first record \"\"")
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "left_out=995") {
			t.Errorf("later: %s", got)
		}
	})
}

// TestSampleLogRecovers logs more causes than are remembered: of later ones it is known
// again how many lines were left out.
func TestSampleLogRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := server.SampleLog(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 400 {
			for range 10 {
				log.Warn("cause " + string(rune('a'+i/20)) + string(rune('a'+i%20)))
			}
		}
		for later := range 3 {
			time.Sleep(time.Minute)
			out.Reset()
			cause := "later " + string(rune('a'+later))
			for range 1000 {
				log.Warn(cause)
			}
			time.Sleep(11 * time.Second)
			log.Warn(cause)
			if got := out.String(); strings.Count(got, "\n") != 6 || !strings.Contains(got, "left_out=995") {
				t.Errorf("later, %d: %s", later, got)
			}
		}
	})
}
