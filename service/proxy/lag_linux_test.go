package proxy_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stint-dev/stint/service/proxy"
)

// A lateListener accepts connections late, as on a machine that is overloaded.
type lateListener struct{ net.Listener }

func (l lateListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	time.Sleep(300 * time.Millisecond)
	return conn, err
}

// TestLag sends requests that are unread for a while: they are refused, unless there is no bound.
func TestLag(t *testing.T) {
	for bound, want := range map[time.Duration]int{100 * time.Millisecond: 503, time.Hour: 200, -1: 200} {
		h := handler(t, oneRule(t, "ip", "10/s"), proxy.Options{MaxLag: bound, Transport: empty})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() {
			served <- proxy.Serve(ctx, lateListener{ln}, h, proxy.ServeOptions{Drain: time.Minute, Log: slog.New(slog.DiscardHandler)})
		}()
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(conn)
		if got := string(answer[:min(len(answer), 12)]); err != nil || got != fmt.Sprint("HTTP/1.1 ", want) {
			t.Errorf("at most %v: %q, %v; want %d", bound, got, err, want)
		}
		_ = conn.Close() // it has been answered
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
