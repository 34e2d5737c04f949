package proxy_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSentAgain has a server close connections without an answer, beside many that are idle: a request
// that may be sent again reaches it twice at most, and passes if the server answers the second time.
func TestSentAgain(t *testing.T) {
	const idle = 20
	var come sync.WaitGroup
	var asked atomic.Int64
	f := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/idle" {
			come.Done()
			come.Wait()
			return
		}
		if n := asked.Add(1); n == 1 || r.URL.Path == "/drop" {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		}
	}, time.Second, "ip", "1000000 per hour")
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/drop", 502}, {"HEAD", "/drop", 502}, {"OPTIONS", "/drop", 502}, {"PUT", "/drop", 502}, {"DELETE", "/drop", 502},
		{"GET", "/", 200}, {"DELETE", "/", 200},
	} {
		come.Add(idle)
		var all sync.WaitGroup
		for range idle {
			all.Go(func() { f.get(t, "/idle") })
		}
		all.Wait()
		asked.Store(0)
		answer := f.send(t, c.method, c.path, http.NoBody, "Idempotency-Key", "k")
		if n := asked.Load(); n != 2 || answer.StatusCode != c.status {
			t.Errorf("%s %s: %d after %d requests, want %d after 2", c.method, c.path, answer.StatusCode, n, c.status)
		}
	}
}
