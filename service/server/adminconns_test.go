package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/service/server"
)

// A line of connections, of the addresses that it was given.
type lineOfConns struct {
	net.Listener
	from []string
}

type connFrom struct {
	net.Conn
	addr   net.Addr
	closed bool
}

func (c *connFrom) RemoteAddr() net.Addr { return c.addr }

func (c *connFrom) Close() error {
	c.closed = true
	return nil
}

func (l *lineOfConns) Accept() (net.Conn, error) {
	if len(l.from) == 0 {
		return nil, io.EOF
	}
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.from[0]))
	l.from = l.from[1:]
	return &connFrom{addr: addr}, nil
}

// TestAdminConns opens silent connections of some addresses, all at once and later: one
// address has a quarter, this machine what is left, and a newcomer takes the place of the
// oldest of who has most.
func TestAdminConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		line := new(lineOfConns)
		ln, got := server.NewAdminConns(slog.New(slog.NewTextHandler(&log, nil))).Listen(line), map[string][]*connFrom{}
		open := func(n int, of string, want map[string]int) {
			t.Helper()
			for range n {
				line.from = append(line.from, of+":1")
			}
			for range n {
				time.Sleep(time.Nanosecond) // so that one is the oldest
				if conn, err := ln.Accept(); err == nil {
					got[of] = append(got[of], conn.(interface{ NetConn() net.Conn }).NetConn().(*connFrom))
				}
			}
			for of, want := range want {
				in := 0
				for _, c := range got[of] {
					if !c.closed {
						in++
					}
				}
				if in != want {
					t.Errorf("%s: %d are open, want %d", of, in, want)
				}
			}
		}
		open(40, "192.0.2.1", map[string]int{"192.0.2.1": 8}) // the others at once are closed
		time.Sleep(time.Second)
		open(40, "192.0.2.2", map[string]int{"192.0.2.2": 8})
		time.Sleep(time.Second)
		open(40, "127.0.0.1", map[string]int{"192.0.2.1": 7, "192.0.2.2": 8, "127.0.0.1": 9}) // then in the places of its own
		open(1, "192.0.2.3", map[string]int{"192.0.2.1": 7, "192.0.2.2": 8, "127.0.0.1": 8, "192.0.2.3": 1})
		open(1, "192.0.2.1", map[string]int{"192.0.2.1": 8, "192.0.2.2": 7})
		open(1, "192.0.2.1", map[string]int{"192.0.2.1": 8}) // within its share
		if !got["192.0.2.1"][0].closed || got["192.0.2.3"][0].closed {
			t.Error("it is not the oldest that is closed")
		}
		if strings.Contains(log.String(), "max-conns") || !strings.Contains(log.String(), "--admin") {
			t.Errorf("log: %s", log.String())
		}
	})
}

// TestOperatorsBesideStrangers: whatever 200 connections without a token do, probes are
// answered and an operator with a token keeps its connection.
func TestOperatorsBesideStrangers(t *testing.T) {
	need.Time(t)
	path := filepath.Join(t.TempDir(), "tokens")
	disk.Write(t, path, "0123456789abcdef0123456789abcdef\n")
	tokens, err := server.ReadOperators(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, stranger := range map[string]func(net.Conn){
		"silent": func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) },
		"slow headers": func(c net.Conn) {
			for err := error(nil); err == nil; time.Sleep(20 * time.Millisecond) {
				_, err = io.WriteString(c, "G")
			}
		},
		"keep-alive": func(c net.Conn) {
			for err := error(nil); err == nil; time.Sleep(50 * time.Millisecond) {
				_, _ = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
				_, err = c.Read(make([]byte, 4096))
			}
		},
		"slow bodies": func(c net.Conn) {
			_, err := io.WriteString(c, "POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n")
			for ; err == nil; time.Sleep(20 * time.Millisecond) {
				_, err = io.WriteString(c, "a")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			known := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tokens.Has(server.Shown(r)) {
					server.KnownToken(r)
				}
				fmt.Fprint(w, "ok")
			})
			var all sync.WaitGroup
			all.Go(func() {
				_ = server.Serve(ctx, server.NewAdminConns(slog.New(slog.DiscardHandler)).Listen(ln), known, server.ServeOptions{Drain: 1})
			})
			for range 200 {
				all.Go(func() {
					for ctx.Err() == nil {
						c, err := net.Dial("tcp4", ln.Addr().String())
						if err == nil {
							done := context.AfterFunc(ctx, func() { _ = c.Close() })
							stranger(c)
							done()
							_ = c.Close()
						}
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			transport := &http.Transport{}
			operator := &http.Client{Transport: transport, Timeout: 30 * time.Second}
			ask := func(what string, token bool) {
				t.Helper()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ln.Addr().String()+"/", nil)
				if err != nil {
					t.Fatal(err)
				}
				if token {
					r.Header.Set("Authorization", "Bearer 0123456789abcdef0123456789abcdef")
				}
				answer, err := operator.Do(r)
				for range 20 { // on a busy machine a new one may be closed before its request is read
					if err == nil || what == "its connection" {
						break
					}
					answer, err = operator.Do(r)
				}
				if err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
			for range 5 {
				ask("an operator", true)
				time.Sleep(100 * time.Millisecond)
				ask("its connection", true)
				transport.CloseIdleConnections()
				ask("a probe", false)
				transport.CloseIdleConnections()
			}
			stop()
			all.Wait()
		})
	}
}
