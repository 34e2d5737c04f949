package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/service/server"
)

// patience is how long a test waits for what must come: far longer than it
// takes, and no measure of anything.
const patience = time.Minute

// serve serves until the test ends, and returns the address, and what stops it
// and returns Serve's error.
func serve(t *testing.T, h http.Handler, o server.ServeOptions) (address string, stop func() error) {
	t.Helper()
	ln := freeport.Listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, ln, h, o) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return ln.Addr().String(), stop
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestSlowClients opens connections that send their headers, their body or
// nothing at all, too slowly: each is cut, while others are answered.
func TestSlowClients(t *testing.T) {
	address, _ := serve(t, server.NewHandler(newOptions(t, someRules)), server.ServeOptions{
		HeaderTimeout: 2 * time.Second, ReadTimeout: 3 * time.Second, IdleTimeout: 2 * time.Second,
	})
	var all sync.WaitGroup
	defer http.DefaultClient.CloseIdleConnections()
	defer all.Wait()
	for _, one := range []struct{ name, sent, answer string }{
		{"nothing", "", ""},
		{"half of a line", "POST /v1/ch", ""},
		{"half of the headers", "POST /v1/check HTTP/1.1\r\nHost: x\r\n", ""},
		{"no body", "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n", " 408 "},
		{"half of a body", "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n{\"attrib", " 408 "},
		{"half of a chunk", "POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"attrib", " 408 "},
		{"no second request", "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", " 200 "},
	} {
		conn := dial(t, address)
		if _, err := io.WriteString(conn, one.sent); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
		if resp, err := http.Get("http://" + address + "/livez"); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: another client: %v", one.name, err)
		} else {
			_ = resp.Body.Close()
		}
		all.Go(func() {
			answer, err := io.ReadAll(conn) // ends when the server closes
			if err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: not cut: %v", one.name, err)
			}
			if first, _, _ := strings.Cut(string(answer), "\n"); !strings.Contains(first, one.answer) {
				t.Errorf("%s: answered %q, want %s", one.name, first, one.answer)
			}
		})
	}
}

// TestRawRequests sends what only an attacker sends.
func TestRawRequests(t *testing.T) {
	const body = `{"attributes":{"path":"/free"}}`
	o := newOptions(t, someRules)
	address, _ := serve(t, server.CheckHost(server.NewHandler(o), o.Observer), server.ServeOptions{})
	for _, one := range []struct{ name, sent, want string }{
		{"as it should be", "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\n\r\n" + body, " 200 "},
		{"a line break in a field", "GET /auth HTTP/1.1\r\nHost: localhost\r\nX-Original-URI: /a\rSet-Cookie: b\r\n\r\n", " 400 "},
		{"a field folded", "GET /auth HTTP/1.1\r\nHost: localhost\r\nX-Original-URI: /a\r\n Set-Cookie: b\r\n\r\n", " 400 "},
		{"a NUL", "GET /auth HTTP/1.1\r\nHost: localhost\r\nX-Original-URI: /a\x00b\r\n\r\n", " 400 "},
		{"two lengths", "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\nContent-Length: 3\r\n\r\n" + body, " 400 "},
		{"two hosts", "GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", " 400 "},
		{"no host", "GET /livez HTTP/1.1\r\n\r\n", " 400 "},
		{"another host", "GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n", " 421 "},
		{"another host, of no path", "OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n", " 421 "},
		{"headers of 21 KiB", "GET /livez HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("x", 21<<10) + "\r\n\r\n", " 431 "},
		{"no path", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", " 404 "},
		{"a host that looks right", "GET /livez HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", " 421 "},
		{"another host in the request line", "GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\n\r\n", " 421 "},
		{"the name of no host", "GET /livez HTTP/1.0\r\n\r\n", " 421 "},
		{"IPv4", "GET /livez HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n", " 200 "},
		{"IPv6", "GET /livez HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", " 200 "},
		{"IPv6 without port", "GET /livez HTTP/1.1\r\nHost: [::1]\r\n\r\n", " 200 "},
		{"localhost", "GET /livez HTTP/1.1\r\nHost: LOCALHOST\r\n\r\n", " 200 "},
	} {
		conn := dial(t, address)
		_, _, before := o.Observer.Counts()
		if _, err := io.WriteString(conn, one.sent); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(line, one.want) {
			t.Errorf("%s: %q, %v; want %s", one.name, line, err, one.want)
		}
		if _, _, after := o.Observer.Counts(); one.want == " 421 " && after != before+1 {
			t.Errorf("%s: %d counted", one.name, after-before)
		}
	}
}

// TestStop holds a request while the server stops: first it is not ready, but takes
// connections; then the request is answered, and Serve returns.
func TestStop(t *testing.T) {
	o := newOptions(t, someRules)
	h := server.NewHandler(o)
	held, release := make(chan struct{}), make(chan struct{})
	reported := make(chan string)
	address, stop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			close(held)
			<-release
			return
		}
		h.ServeHTTP(w, r)
	}), server.ServeOptions{Notice: time.Millisecond, Drain: patience, OnStop: func() {
		o.Admin.Stop()
		reported <- "to stop"
		<-reported // what follows waits until the test has looked
	}})
	answered := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + address + "/held")
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	<-held
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	<-reported
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		conn := dial(t, address) // a new one
		_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.0\r\nHost: localhost\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	reported <- "go on"
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the request that was held: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("it listens still")
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestStopTooSlow stops a server whose request does not end.
func TestStopTooSlow(t *testing.T) {
	held := make(chan struct{})
	address, stop := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(held)
		<-r.Context().Done()
	}), server.ServeOptions{Drain: 50 * time.Millisecond})
	conn := dial(t, address)
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-held
	if err := stop(); err == nil || !strings.Contains(err.Error(), "drain was over") {
		t.Errorf("Serve: %v", err)
	}
}

// TestErrorLog gives a log to net/http and makes it name a client.
func TestErrorLog(t *testing.T) {
	var out bytes.Buffer
	server.ErrorLog(slog.New(slog.NewTextHandler(&out, nil))).Print("http: TLS handshake error from 192.0.2.7:4711: EOF\n")
	if text := out.String(); strings.Contains(text, "192.0.2.7") || !strings.Contains(text, "[address]: EOF") {
		t.Error(text)
	}
	for line, want := range map[string]string{
		"from [2001:db8::1%eth0]:443: x":             "from [address]: x",
		"2001:db8:0:1::7 left":                       "[address] left",
		"at 12:30 o'clock":                           "at 12:30 o'clock",
		`received starting with "a\"b\\"; err=<nil>`: "received; err=<nil>",
	} {
		if got := server.Redact(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestStopAccepts stops a server whose clients have connected and not been
// accepted yet: they are answered.
func TestStopAccepts(t *testing.T) {
	ln := freeport.Listen(t)
	var conns []net.Conn
	for range 100 {
		conn := dial(t, ln.Addr().String())
		if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	served := make(chan error, 1)
	go func() {
		bounds := server.NewConns(server.ConnsOptions{Max: 1000, PerAddress: 1000, Log: slog.New(slog.DiscardHandler)})
		served <- server.Serve(ctx, bounds.Listen(ln), server.NewHandler(newOptions(t, someRules)), server.ServeOptions{Drain: patience})
	}()
	for i, conn := range conns {
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("connection %d of those that waited: %v %+v", i, err, resp)
		}
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestLargeBodyAnswered sends a body that is too large as a whole before it reads, as many
// clients do: the answer is there.
func TestLargeBodyAnswered(t *testing.T) {
	address, _ := serve(t, server.NewHandler(newOptions(t, someRules)), server.ServeOptions{ReadTimeout: patience, WriteTimeout: patience})
	for _, length := range []string{"Content-Length: 8388608", "Transfer-Encoding: chunked"} {
		conn := dial(t, address)
		body := strings.Repeat("x", 8<<20)
		if strings.HasPrefix(length, "T") {
			body = "800000\r\n" + body + "\r\n0\r\n\r\n"
		}
		if _, err := fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n%s", address, length, body); err != nil {
			t.Errorf("%s: %v", length, err)
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %v %v", length, resp, err)
		}
	}
}
