package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

// takeOver answers on the connection itself.
func takeOver(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nseven b")
		_ = conn.Close()
	}
}

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
		{"a connection taken over", failures, takeOver, 1, 1},
		{"what is taken over, by its bytes", `"cost": {"response": "bytes", "reserve": 100}`, takeOver, 100, 100},
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
