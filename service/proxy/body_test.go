package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/httplimit"

	"github.com/stint-dev/stint/service/proxy"
)

// TestBodies sends bodies that do not come, break off or are slow: the client
// gets an error, and the upstream is not blamed.
func TestBodies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
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
		f := start(t, mustURL(t, server.URL), 0, yaml(t, test.rules), httplimit.ClientIP{}, proxy.Options{BodyStall: 50 * time.Millisecond})
		if got := f.raw(t, "POST / HTTP/1.1\r\nHost: h\r\n"+test.request); got != test.want {
			t.Errorf("%q under %s: %q, want %q", test.request, test.rules, got, test.want)
		}
		if log := f.log.String(); strings.Contains(log, "upstream") {
			t.Errorf("%q: the log blames the upstream: %s", test.request, log)
		}
	}
}

// TestBodyRate sends a byte each 2 ms, which is faster than nothing and slower
// than the least rate: the client is cut off. A rate that it keeps lets it go
// on, for longer than it may stall.
func TestBodyRate(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel() // it waits
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	for _, test := range []struct {
		rate int64
		want int
	}{{1 << 20, http.StatusRequestTimeout}, {1, http.StatusOK}, {-1, http.StatusOK}} {
		f := start(t, mustURL(t, server.URL), 0, oneRule(t, "ip", "100/s"), httplimit.ClientIP{}, proxy.Options{BodyStall: 3 * time.Second, BodyRate: test.rate})
		out, in := io.Pipe()
		go func() {
			for range 1700 {
				if _, err := in.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(2 * time.Millisecond)
			}
			_ = in.Close() // a pipe closes
		}()
		answer, err := f.client.Post("http://"+f.address, "text/plain", out)
		_ = out.Close() // the writer may wait
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // the status says it
		if answer.StatusCode != test.want {
			t.Errorf("at least %d bytes a second: %d, want %d", test.rate, answer.StatusCode, test.want)
		}
	}
}

// TestBodiesOfOneAddress: bodies that rules wait for take the room of one address, and no
// more; others are served, and the room is free once rules have decided, or cannot.
func TestBodiesOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, more = 64, 6 // of bodies that do not say how long they are
		var behind, answered, refused, broken atomic.Int64
		goOn := make(chan struct{})
		h := handler(t, yaml(t, "rules: [{name: a, key: [body./a], limits: 1000/s}]"), proxy.Options{
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				_, err := io.Copy(io.Discard, r.Body)
				behind.Add(1)
				<-goOn
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, err
			}),
		})
		post := func(address string, body io.ReadCloser) {
			r := httptest.NewRequest(http.MethodPost, "/", body)
			r.RemoteAddr = address + ":1"
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			_ = body.Close() // as net/http does: who writes it goes on
			switch w.Code {
			case http.StatusOK:
				answered.Add(1)
			case http.StatusServiceUnavailable:
				refused.Add(1)
			case http.StatusBadRequest:
				broken.Add(1)
			}
		}
		one := func() io.ReadCloser { return io.NopCloser(strings.NewReader(`{"a":1}`)) }
		want := func(what string, got *atomic.Int64, n int64) {
			t.Helper()
			if synctest.Wait(); got.Load() != n {
				t.Errorf("%d %s, want %d", got.Load(), what, n)
			}
		}
		for round := range int64(2) { // bodies that break off, and bodies that come
			var bodies []*io.PipeWriter
			for range room + more {
				r, w := io.Pipe()
				bodies = append(bodies, w)
				go post("192.0.2.1", r)
			}
			want("refused", &refused, (round+1)*more)
			go post("192.0.2.2", one())
			want("behind", &behind, round+1)
			for _, w := range bodies {
				go func() {
					if round == 0 {
						_ = w.CloseWithError(io.ErrUnexpectedEOF)
						return
					}
					_, _ = io.WriteString(w, `{"a":1}`) // of those that were refused, nobody reads
					_ = w.Close()
				}()
			}
			want("broken", &broken, room)
		}
		want("behind", &behind, 2+room)
		go post("192.0.2.1", one()) // while all the answers go on
		want("behind", &behind, 3+room)
		close(goOn)
		want("answered", &answered, 3+room)
	})
}
