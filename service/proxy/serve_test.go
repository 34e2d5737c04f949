package proxy_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rules"
)

// TestTLS serves https, over HTTP/2 to a client that can, and says so behind.
func TestTLS(t *testing.T) {
	proto := make(chan string, 1)
	behind := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		proto <- r.Header.Get("X-Forwarded-Proto")
	}))
	defer behind.Close()
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	own := behind.Client().Transport.(*http.Transport).Clone()
	own.ForceAttemptHTTP2 = true
	defer own.CloseIdleConnections()
	h := handler(t, oneRule(t, "ip", "1/h"), proxy.Options{Upstream: target, UpstreamHost: true, Transport: own})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- proxy.Serve(ctx, ln, h, proxy.ServeOptions{
			Drain: time.Minute, Log: slog.New(slog.DiscardHandler),
			TLS: &tls.Config{Certificates: behind.TLS.Certificates},
		})
	}()
	answer, err := (&http.Client{Transport: own}).Get("https://" + ln.Addr().String())
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
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestReload changes the rules while the proxy runs: what was used stays used,
// and a file that is broken changes nothing.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stint.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`rules: [{name: a, key: [ip], limits: 2 per hour sliding_log}]`)
	store := memstore.New(memstore.Options{})
	defer store.Close()
	read, err := rules.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	src, err := rules.Open(store, file, read, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := proxy.NewHandler(proxy.Options{
		Upstream: &url.URL{Scheme: "http", Host: "upstream"}, Source: src, Observer: observer(t), Log: slog.New(slog.DiscardHandler),
		Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		write string
		want  int
	}{
		{"", 200},
		{"", 200},
		{"", 429},
		{`rules: [{name: a, key: [ip], limits: 4 per hour sliding_log}]`, 200},
		{`rules: [{name: a, key: [ip], limits: 9 per hour sliding_log, and: more}]`, 200},
		{"", 429},
	} {
		if step.write != "" {
			write(step.write)
			_ = src.Reload() // fails in the fourth step, which is the point
		}
		if w := get(h, "/"); w.Code != step.want {
			t.Errorf("step %d: answered %d, want %d", i, w.Code, step.want)
		}
	}
}

// TestStopIsAnnounced stops: the proxy goes on taking connections for as long as
// balancers may need to see that it is not ready.
func TestStopIsAnnounced(t *testing.T) {
	h := handler(t, oneRule(t, "ip", "10/s"), proxy.Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	reported, served := make(chan struct{}), make(chan error)
	go func() {
		served <- proxy.Serve(ctx, ln, h, proxy.ServeOptions{
			Notice: time.Hour, Drain: time.Minute, Log: slog.New(slog.DiscardHandler), OnStop: func() { close(reported) },
		})
	}()
	stop()
	<-reported
	answer, err := http.Get("http://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // it is empty
	http.DefaultClient.CloseIdleConnections()
	_ = ln.Close() // an hour is long
	<-served
}
