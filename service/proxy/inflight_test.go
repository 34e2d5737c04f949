package proxy_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/service/observe"
)

// TestLimitInFlight: a stream, an upgraded connection, and a request whose client or server goes away
// hold their places as long as they last, and no longer.
func TestLimitInFlight(t *testing.T) {
	finish := make(chan struct{})
	f := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/free":
			return
		case "/":
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
	}, time.Second, "ip", "1 in flight")
	until := func(what string, held int64) {
		t.Helper()
		await.Until(t, what, func() bool { return f.source.Policy().InFlight()["proxy"] == held })
	}
	ask := func(path string) (leave context.CancelFunc, status chan int) {
		ctx, leave := context.WithCancel(t.Context())
		status = make(chan int, 1)
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.address+path, nil)
			if err != nil {
				t.Error(err)
			} else if a, err := f.client.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, a.Body)
				_ = a.Body.Close()
				status <- a.StatusCode
			}
			close(status)
		}()
		return leave, status
	}
	for path, want := range map[string]int{"/stream": http.StatusOK, "/hang": 0, "/crash": http.StatusBadGateway, "/": http.StatusSwitchingProtocols} {
		var end func() int
		if path == "/" {
			conn, _, _ := f.upgrade(t)
			end = func() int { _ = conn.Close(); return http.StatusSwitchingProtocols }
		} else {
			leave, status := ask(path)
			end = func() int {
				if path == "/hang" {
					leave()
				} else {
					finish <- struct{}{}
				}
				defer leave()
				return <-status
			}
		}
		until(path+" begins", 1)
		if a := f.get(t, "/free"); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "1" {
			t.Errorf("beside %s: %d %v", path, a.StatusCode, a.Header)
		}
		if got := end(); got != want {
			t.Errorf("%s is answered %d, want %d", path, got, want)
		}
		until(path+" ends", 0)
	}
	if a := f.get(t, "/free"); a.StatusCode != http.StatusOK {
		t.Errorf("at the end: %d", a.StatusCode)
	}
	if counts := f.observer.CountsByRule()["proxy"]; counts != (observe.RuleCounts{Allowed: 5, Denied: 4}) {
		t.Errorf("counted %+v", counts)
	}
}
