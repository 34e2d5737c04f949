package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/cmd/internal/server"
)

// nginxMain is what nginx needs around the snippet, to run without rights and
// without files outside of its directory.
const nginxMain = `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
%s}
`

// TestNginx runs Debian's nginx with the snippet of docs/SERVE.md between a
// client and a server.
func TestNginx(t *testing.T) {
	o := newOptions(t, someRules)
	stint, _ := serve(t, server.CheckHost(server.NewHandler(o)), server.ServeOptions{})
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI)
	}))
	defer behind.Close()
	address := startNginx(t, strings.NewReplacer(
		"127.0.0.1:8080", stint, "127.0.0.1:9000", behind.Listener.Addr().String(),
	).Replace(blocks(t, "nginx")[0]))

	send := func(method, path string, headers ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader("user=ada"))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	defer http.DefaultClient.CloseIdleConnections()
	const policy = `"login";q=5;w=60`
	for i := range 5 {
		resp, body := send("POST", "/login?x=%2F")
		if want := fmt.Sprintf(`"login";r=%d;t=60`, 4-i); resp.StatusCode != http.StatusOK || body != "POST /login?x=%2F" ||
			resp.Header.Get("RateLimit") != want || resp.Header.Get("RateLimit-Policy") != policy {
			t.Errorf("request %d: %d %q %v; want RateLimit: %s", i, resp.StatusCode, body, resp.Header, want)
		}
	}
	// What clients claim changes nothing: they are the same client still.
	for _, claim := range [][]string{
		nil, {"X-Forwarded-For", "198.51.100.1"}, {"X-Forwarded-Uri", "/free"}, {"X-Original-URI", "/free"}, {"X-Original-Method", "GET"},
		{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/free", "X-Forwarded-Host", "x"}, {"Content-Type", "application/grpc"},
	} {
		resp, _ := send("POST", "/login", claim...)
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "60" && resp.Header.Get("Retry-After") != "59" ||
			!strings.HasPrefix(resp.Header.Get("RateLimit"), `"login";r=0;t=`) || resp.Header.Get("RateLimit-Policy") != policy {
			t.Errorf("%v: %d %v; want 429 with Retry-After and fields", claim, resp.StatusCode, resp.Header)
		}
	}
	for _, one := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{"GET", "/login", nil, http.StatusOK},
		{"GET", "/other", nil, http.StatusOK},
		{"GET", "/other", []string{"X-Bad", "1"}, http.StatusForbidden},
		{"GET", "/forbidden", nil, http.StatusForbidden}, // the server's own
		{"GET", "/a/..%2Flogin", nil, http.StatusForbidden},
		{"GET", "/_stint", nil, http.StatusNotFound},
	} {
		resp, _ := send(one.method, one.path, one.headers...)
		if resp.StatusCode != one.want || resp.Header.Get("Retry-After") != "" {
			t.Errorf("%s %s %v: %d %v; want %d", one.method, one.path, one.headers, resp.StatusCode, resp.Header, one.want)
		}
	}
}

// startNginx runs nginx with a server block until the test ends, and returns
// its address.
func startNginx(t *testing.T, block string) string {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		path = "/usr/sbin/nginx" // not on the path of everyone
		if _, err := os.Stat(path); err != nil {
			t.Fatal("this test needs nginx: apt-get install nginx-light")
		}
	}
	address := freeAddress(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	block = strings.Replace(block, "127.0.0.1:8000", address, 1)
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxMain, block), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	nginx := exec.CommandContext(ctx, path, "-p", dir, "-c", config, "-e", "stderr")
	nginx.Cancel = func() error { return nginx.Process.Signal(syscall.SIGTERM) }
	var said strings.Builder
	nginx.Stderr = &said
	if err := nginx.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = nginx.Wait() // it is told to stop
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if t.Failed() {
			t.Logf("nginx said:\n%s", said.String())
		}
	})
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
		select {
		case <-ended:
			t.Fatalf("nginx ended:\n%s", said.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("nginx does not listen: %v", err)
		}
	}
}

// freeAddress returns an address on loopback that nobody listened on just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
