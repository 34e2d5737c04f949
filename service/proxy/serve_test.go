package proxy_test

import (
	"crypto/tls"
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
