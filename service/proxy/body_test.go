package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/service/proxy"
)

// TestBodies sends bodies that do not come, break off or are slow: the client
// gets an error, and the upstream is not blamed.
func TestBodies(t *testing.T) {
	server := upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		_, _ = w.Write(body)
	})
	const (
		passes = "rules: [{name: a, key: [ip], limits: 1000 per hour}]"
		queues = "rules: [{name: a, key: [ip], limits: 1000/s burst 1000 leaky_queue}]"
		denies = "rules: [{name: a, block: true}]"
	)
	for _, test := range []struct {
		rules, request, want string
	}{
		{passes, "Content-Length: 4\r\n\r\nbody", "body"},
		{passes, "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "body"},
		{passes, "Content-Length: 100\r\n\r\nbody", "408"},
		{queues, "Content-Length: 100\r\n\r\nbody", "408"},
		{queues, "Content-Length: 4\r\n\r\nbody", "body"},
		{queues, "Content-Length: 100000\r\n\r\nbody", "408"}, // longer than what is read before it queues
		{denies, "Content-Length: 100\r\n\r\nbody", "403"},
		{denies, "Content-Length: 100000000\r\n\r\nbody", "403"},
		{denies, "Transfer-Encoding: chunked\r\n\r\n4\r\nbo", "403"},
		{passes, "Transfer-Encoding: chunked\r\n\r\nzz\r\nbody\r\n", "400"},
	} {
		f := start(t, server, 0, yaml(t, test.rules), httplimit.ClientIP{}, proxy.Options{BodyStall: 50 * time.Millisecond})
		if got := f.raw(t, "POST / HTTP/1.1\r\nHost: h\r\n"+test.request); got != test.want {
			t.Errorf("%q under %s: %q, want %q", test.request, test.rules, got, test.want)
		}
		if log := f.log.String(); strings.Contains(log, "upstream") {
			t.Errorf("%q: the log blames the upstream: %s", test.request, log)
		}
	}
}

// TestBodyReason: a body that can be read in two ways is refused for that, and not for what one
// reader makes of it.
func TestBodyReason(t *testing.T) {
	r := newRoom(t, "rules: [{name: a, key: [], limits: 1000/h, cost: {usage: openai, reserve: 10, price: {by: body./model, models: {small: 1}}}}]", proxy.Options{})
	for body, want := range map[string]string{
		`{"model":"small","model":"large"}`: "comes twice", `{"Model":"small"}`: "spelled otherwise", `{"model":"large"}`: "no price here", `{}`: "no price here",
	} {
		q, w := httptest.NewRequest(http.MethodPost, "/work", strings.NewReader(body)), httptest.NewRecorder()
		q.Header.Set("Content-Type", "application/json")
		if r.h.ServeHTTP(w, q); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %q", body, w.Code, w.Body, want)
		}
	}
}

// TestBodyRate sends a byte each 2 ms. If that is below the least rate, the client is cut off;
// otherwise it goes on for longer than it may stall.
func TestBodyRate(t *testing.T) {
	for rate, want := range map[int64]int{1 << 20: http.StatusRequestTimeout, 1: http.StatusOK, -1: http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoom(t, "rules: [{name: a, key: [ip], limits: 100/s}]", proxy.Options{BodyStall: 3 * time.Second, BodyRate: rate})
			w := r.post("192.0.2.1:1", "/")
			for range 1700 {
				_, _ = w.Write([]byte("x")) // it fails once the client is cut off
				time.Sleep(2 * time.Millisecond)
			}
			_ = w.Close()
			r.want(want, 1)
		})
	}
}
