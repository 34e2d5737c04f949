package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stint-dev/stint/service/observe"
)

// TestLimitInFlight: a stream, an upgraded connection, and a request whose client or server goes away
// hold their places as long as they last, and no longer.
func TestLimitInFlight(t *testing.T) {
	finish := make(chan struct{})
	behind := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/free":
			return
		case "/upgrade":
			echo(w, r)
			return
		case "/stream":
			_, _ = io.WriteString(w, "begun\n")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-finish:
		case <-r.Context().Done():
		}
		if r.URL.Path == "/crash" {
			panic(http.ErrAbortHandler)
		}
	}
	f := serve(t, behind, time.Second, "ip", "1 in flight")
	busy := func() bool { return f.source.Policy().InFlight()["proxy"] == 1 }
	until := func(what string, want bool) {
		t.Helper()
		for busy() != want {
			select {
			case <-t.Context().Done():
				t.Fatalf("%s: not in a long time", what)
			case <-time.After(time.Millisecond):
			}
		}
	}
	full := func(what string) {
		t.Helper()
		if a := f.get(t, "/free"); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %v", what, a.StatusCode, a.Header)
		}
	}

	a := f.get(t, "/stream") // its headers are here, its body is not
	full("a stream")
	finish <- struct{}{}
	_, _ = io.Copy(io.Discard, a.Body)
	until("the stream ends", false)

	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.address+"/hang", nil)
		if err == nil {
			_, err = f.client.Do(r)
		}
		gone <- err
	}()
	until("the request that hangs begins", true)
	full("a request that hangs")
	cancel()
	<-gone
	until("its client goes", false)

	crashed := make(chan int, 1)
	go func() { crashed <- f.get(t, "/crash").StatusCode }()
	until("the request that crashes begins", true)
	finish <- struct{}{}
	if code := <-crashed; code != http.StatusBadGateway {
		t.Errorf("its server goes: %d", code)
	}
	until("its server goes", false)

	conn := f.dial(t)
	fmt.Fprintf(conn, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if status, _ := bufio.NewReader(conn).ReadString('\n'); status != "HTTP/1.1 101 Switching Protocols\r\n" {
		t.Errorf("upgrade: %q", status)
	}
	full("a WebSocket")
	_ = conn.Close()
	until("it is closed", false)
	if a := f.get(t, "/free"); a.StatusCode != http.StatusOK {
		t.Errorf("at the end: %d", a.StatusCode)
	}
	if counts := f.observer.CountsByRule()["proxy"]; counts != (observe.RuleCounts{Allowed: 5, Denied: 3}) {
		t.Errorf("counted %+v", counts)
	}
}
