package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-dev/stint/service/proxy"
)

// TestTLS serves https, over HTTP/2 to clients that speak it, and tells the upstream.
func TestTLS(t *testing.T) {
	proto := make(chan string, 1)
	behind := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		proto <- r.Header.Get("X-Forwarded-Proto")
	}))
	defer behind.Close()
	target := mustURL(t, behind.URL)
	own := behind.Client().Transport.(*http.Transport).Clone()
	own.ForceAttemptHTTP2 = true
	defer own.CloseIdleConnections()
	f := startServing(t, oneRule(t, "ip", "1/h"), proxy.Options{Upstream: target, UpstreamHost: true, Transport: own},
		proxy.ServeOptions{Drain: time.Minute, TLS: &tls.Config{Certificates: behind.TLS.Certificates}})
	answer, err := (&http.Client{Transport: own}).Get("https://" + f.address)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // it is empty
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
		t.Errorf("answered %d over %s", answer.StatusCode, answer.Proto)
	}
	if got := <-proto; got != "https" {
		t.Errorf("X-Forwarded-Proto: %s", got)
	}
}

// TestStopUnanswered: a stop that cuts a request without an answer is an error if its client is there to
// miss it, and none if the client has left.
func TestStopUnanswered(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		begun, left, release := make(chan bool), make(chan bool), make(chan bool)
		goesOn := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			begun <- true
			if leaves {
				<-r.Context().Done()
				left <- true
			}
			<-release
		})
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() {
			served <- proxy.Serve(ctx, ln, goesOn, proxy.ServeOptions{Drain: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
		}()
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if <-begun; leaves {
			_ = conn.Close()
			<-left
		}
		stop()
		if err := <-served; (err == nil) != leaves {
			t.Errorf("the client has left: %v, error: %v", leaves, err)
		}
		close(release)
		_ = conn.Close()
	}
}
