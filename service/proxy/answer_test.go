package proxy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/stint-dev/stint/service/proxy"
)

// patience is how long tests wait for an event that must come.
const patience = 40 * time.Second

// endless writes until it fails, and says so.
func endless(t *testing.T) (behind *url.URL, ended chan bool) {
	t.Helper()
	ended = make(chan bool, 8)
	return upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- true }()
		var to io.Writer = w
		if r.Header.Get("Upgrade") != "" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			to = conn
		}
		for piece := make([]byte, 64<<10); ; {
			if _, err := to.Write(piece); err != nil {
				return
			}
		}
	}), ended
}

// TestSlowReaders has clients that do not read their answers: each is cut, and the upstream is
// free again.
func TestSlowReaders(t *testing.T) {
	t.Parallel() // it waits
	certificate := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certificate.Close)
	secure := &tls.Config{Certificates: certificate.TLS.Certificates}
	for _, test := range []struct {
		name   string
		tls    bool
		client func(t *testing.T, conn net.Conn)
	}{
		{"HTTP/1.1", false, func(_ *testing.T, conn net.Conn) { fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n") }},
		{"HTTP/1.0", false, func(_ *testing.T, conn net.Conn) { fmt.Fprint(conn, "GET / HTTP/1.0\r\nHost: h\r\n\r\n") }},
		{"TLS", true, func(_ *testing.T, conn net.Conn) { fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n") }},
		{"WebSocket", false, func(_ *testing.T, conn net.Conn) {
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		}},
		{"HTTP/2 that reads nothing", false, func(t *testing.T, conn net.Conn) {
			f := ask2(t, conn, 1<<30)
			_ = f.WriteWindowUpdate(0, 1<<30)
		}},
		{"HTTP/2 without a window", false, func(t *testing.T, conn net.Conn) {
			f := ask2(t, conn, 1000)
			go pong(f)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // it waits
			behind, ended := endless(t)
			o := proxy.ServeOptions{AnswerStall: 400 * time.Millisecond}
			if test.tls {
				o.TLS = secure
			}
			f := startServing(t, oneRule(t, "ip", "100/h"), proxy.Options{Upstream: behind}, o)
			conn := f.dial(t)
			if test.tls {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // any certificate will do
			}
			test.client(t, conn)
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("the answer goes on")
			}
			later := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience}
			scheme := "http://"
			if test.tls {
				scheme = "https://"
			}
			answer, err := later.Get(scheme + f.address)
			if err != nil {
				t.Fatal("later: ", err)
			}
			defer answer.Body.Close()
			if n, err := io.CopyN(io.Discard, answer.Body, 8<<20); err != nil {
				t.Errorf("later, a client that reads gets %d bytes: %v", n, err)
			}
		})
	}
}

// ask2 asks over HTTP/2 in the clear, with a window for each answer.
func ask2(t *testing.T, conn net.Conn, window uint32) *http2.Framer {
	t.Helper()
	fmt.Fprint(conn, http2.ClientPreface)
	f := http2.NewFramer(conn, conn)
	var header bytes.Buffer
	e := hpack.NewEncoder(&header)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", "/"}} {
		_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}) // to a buffer
	}
	err := errors.Join(
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header.Bytes(), EndStream: true, EndHeaders: true}))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// pong reads frames, and does no more than keep the connection.
func pong(f *http2.Framer) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data) // it fails on reading too
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck() // as above
			}
		}
	}
}

// TestSlowReaderOfSmallAnswers asks again and again on one connection and reads nothing: the
// answers are small, and wait in buffers after their handlers have returned.
func TestSlowReaderOfSmallAnswers(t *testing.T) {
	t.Parallel() // it waits
	behind := upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2000)) })
	f := startServing(t, oneRule(t, "ip", "1000000/s"), proxy.Options{Upstream: behind}, proxy.ServeOptions{AnswerStall: 400 * time.Millisecond})
	conn := f.dial(t)
	_ = conn.(*net.TCPConn).SetReadBuffer(4096) // the sooner answers have to wait
	// Long requests: the system says only every 64 KiB that it takes more of them.
	request := "GET / HTTP/1.1\r\nHost: h\r\nLong: " + strings.Repeat("x", 2000) + "\r\n\r\n"
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(patience)) // a TCP connection has deadlines
		_, err := fmt.Fprint(conn, request)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection is kept")
		}
		if err != nil {
			return
		}
	}
}

// TestReadersThatAreFast cuts nobody: a stream is silent for longer than a client may stall, and
// a client reads little by little.
func TestReadersThatAreFast(t *testing.T) {
	t.Parallel() // it waits
	const stall, pieces = 2 * time.Second, 160
	behind := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			for range 3 {
				fmt.Fprint(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush() // it has one
				time.Sleep(stall + 100*time.Millisecond)
			}
			return
		}
		_, _ = w.Write(make([]byte, pieces<<16))
	})
	for _, path := range []string{"/events", "/large"} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(protocol+path, func(t *testing.T) {
				t.Parallel() // it waits
				f := startServing(t, oneRule(t, "ip", "100/h"), proxy.Options{Upstream: behind}, proxy.ServeOptions{AnswerStall: stall, AnswerRate: 1})
				own := &http.Transport{Protocols: new(http.Protocols), ReadBufferSize: 1 << 16}
				own.Protocols.SetHTTP1(protocol == "HTTP/1.1")
				own.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2")
				defer own.CloseIdleConnections()
				f.client = &http.Client{Transport: own}
				answer := f.get(t, path)
				n, want := int64(0), int64(27)
				if path == "/large" {
					want = pieces << 16
				}
				for {
					more, err := io.CopyN(io.Discard, answer.Body, 1<<16)
					n += more
					if err != nil {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				if n != want {
					t.Errorf("%d bytes, want %d", n, want)
				}
			})
		}
	}
}

// TestStopCutsReaders stops while a client does not read its answer, while a request has none, and
// while one goes on whose client has left: all are cut at the end of the drain, and it is an error if a
// client is there to miss its answer.
func TestStopCutsReaders(t *testing.T) {
	t.Parallel() // it waits
	for what, missed := range map[string]bool{"reads nothing": false, "has no answer": true, "has left": false} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		begun, left, release := make(chan bool), make(chan bool), make(chan bool)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun <- true
			switch what {
			case "reads nothing":
				for piece := make([]byte, 64<<10); ; {
					if _, err := w.Write(piece); err != nil {
						return
					}
				}
			case "has left":
				<-r.Context().Done()
				left <- true
			}
			<-release
		})
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() {
			served <- proxy.Serve(ctx, ln, h, proxy.ServeOptions{Drain: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
		}()
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		switch <-begun; what {
		case "reads nothing":
			if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil { // the answer has begun
				t.Fatal(err)
			}
		case "has left":
			_ = conn.Close()
			<-left
		}
		stop()
		if err := <-served; (err != nil) != missed {
			t.Errorf("a client that %s: %v", what, err)
		}
		close(release)
		_ = conn.Close() // it has been cut
	}
}
