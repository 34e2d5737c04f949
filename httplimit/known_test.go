package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stint-dev/stint/httplimit"
)

// TestSettledAtHeader: a charge that the status or a header decides is settled when the
// header is written, and nothing that the handler does later changes it.
func TestSettledAtHeader(t *testing.T) {
	const failures, field = `"count": {"status": [101, 401, 500]}`, `"cost": {"response": "header.x-cost", "reserve": 100}`
	for _, c := range []struct {
		name, rule string
		handler    func(w http.ResponseWriter)
		want, end  int64 // charged while the handler runs, and after it
	}{
		{"a stream", failures, func(w http.ResponseWriter) { w.WriteHeader(200) }, 0, 0},
		{"a first byte", failures, func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") }, 0, 0},
		{"a failure", failures, func(w http.ResponseWriter) { w.WriteHeader(401) }, 1, 1},
		{"early hints", failures, func(w http.ResponseWriter) { w.WriteHeader(103) }, 1, 0},
		{"one status too many", failures, func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(202); w.WriteHeader(401) }, 0, 0},
		{"switching protocols", failures, func(w http.ResponseWriter) { w.WriteHeader(101) }, 1, 1},
		{"a header", field, func(w http.ResponseWriter) { w.Header().Set("X-Cost", "7"); w.WriteHeader(200) }, 7, 7},
		{"no such header", field, func(w http.ResponseWriter) { w.WriteHeader(200) }, 100, 100},
		{"a header and a panic", field, func(w http.ResponseWriter) {
			w.Header().Set("X-Cost", "7")
			w.WriteHeader(200)
			panic(http.ErrAbortHandler)
		}, 0, 7},
		{"a success and a panic", failures, func(w http.ResponseWriter) {
			w.WriteHeader(200)
			panic(http.ErrAbortHandler)
		}, 0, 0},
		{"a panic", failures, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, 0, 1},
		{"no status", failures, func(w http.ResponseWriter) { w.WriteHeader(1000) }, 0, 1},
		{"a trailer of gRPC", field, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/grpc")
			w.WriteHeader(200)
			w.Header().Set(http.TrailerPrefix+"X-Cost", "7")
		}, 100, 7},
		{"a trailer of a page", field, func(w http.ResponseWriter) {
			w.WriteHeader(200)
			w.Header().Set(http.TrailerPrefix+"X-Cost", "7")
		}, 100, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m *metered
			var during int64
			m = metering(t, fmt.Sprintf(rulesOf, c.rule), func(w http.ResponseWriter, _ *http.Request) {
				c.handler(w)
				during = 1000 - m.left("/r/x")["r"]
			})
			if resp, err := http.Get(m.URL + "/r/x"); err == nil {
				_ = resp.Body.Close()
			}
			<-m.ended
			if end := 1000 - m.left("/r/x")["r"]; during != c.want || end != c.end {
				t.Errorf("charged %d, and %d at the end; want %d and %d", during, end, c.want, c.end)
			}
			if m.errs.Load() > 0 {
				t.Errorf("%d errors", m.errs.Load())
			}
		})
	}
}

// TestRefundAtHeader is the same for Options.Settle: open streams hold no reservation, and if
// the handler resets the key, there is no error.
func TestRefundAtHeader(t *testing.T) {
	l := limiter(t, nil, "3/h sliding_log")
	var errs atomic.Int64
	o := httplimit.Options{Settle: back(func(status int) bool { return status < 400 }), OnError: func(*http.Request, error) { errs.Add(1) }}
	left := func() int64 {
		d, err := l.Peek(context.Background(), "192.0.2.1", 0)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	for path, want := range map[string]int64{"/200": 3, "/401": 2, "/reset": 3} {
		t.Run(path[1:], func(t *testing.T) {
			guard(t, l, o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if path == "/reset" {
					if err := l.Reset(r.Context(), "192.0.2.1"); err != nil {
						t.Error(err)
					}
				}
				status := 200
				if path == "/401" {
					status = 401
				}
				w.WriteHeader(status)
				if got := left(); got != want {
					t.Errorf("%d left while it runs, want %d", got, want)
				}
			})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
			if got := left(); got != want || errs.Load() > 0 {
				t.Errorf("%d left, %d errors; want %d", got, errs.Load(), want)
			}
			if err := l.Reset(t.Context(), "192.0.2.1"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestTakenOverCounts: a connection that the handler takes over counts as 101 at that moment.
func TestTakenOverCounts(t *testing.T) {
	var m *metered
	m = metering(t, fmt.Sprintf(rulesOf, `"count": {"status": [401, 200]}`), func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if left := m.left("/r/x")["r"]; left != 1000 {
			t.Errorf("%d left while it runs", left)
		}
		_ = conn.Close()
	})
	if resp, err := http.Get(m.URL + "/r/x"); err == nil {
		_ = resp.Body.Close()
	}
	<-m.ended
}
