package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stint-dev/stint/httplimit"
)

// TestLargeBodies sends a large body, which comes back while it is sent, with a
// trailer: nothing is lost, and each request is charged once, whatever its size. The
// trailer of the request is dropped, since servers may take it for a header.
func TestLargeBodies(t *testing.T) {
	size := int64(32 << 20)
	if os.Getenv("STINT_SOAK") != "" {
		size = 1 << 30
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Read, X-Was")
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 has no need of it
		n, err := io.Copy(w, r.Body)
		w.Header().Set("X-Read", fmt.Sprint(n, err))
		w.Header().Set("X-Was", r.Trailer.Get("X-Sum"))
	}))
	server.Start()
	defer server.Close()
	f := start(t, mustURL(t, server.URL), 0, oneRule(t, "ip", "2/h"), httplimit.ClientIP{})
	for _, two := range []bool{false, true} {
		own := &http.Transport{Protocols: new(http.Protocols)}
		own.Protocols.SetHTTP1(!two)
		own.Protocols.SetUnencryptedHTTP2(two)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.address, io.LimitReader(zeros{}, size))
		if err != nil {
			t.Fatal(err)
		}
		r.Trailer = http.Header{"X-Sum": {"of all"}}
		answer, err := (&http.Client{Transport: own}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close() // it has been read
		if n != size || err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("HTTP/2 %t: %d, %d bytes came back, %v; want %d", two, answer.StatusCode, n, err, size)
		}
		if got, want := answer.Trailer.Get("X-Read")+" "+answer.Trailer.Get("X-Was"), fmt.Sprint(size, " <nil> "); got != want {
			t.Errorf("HTTP/2 %t: trailers %q, want %q", two, got, want)
		}
		own.CloseIdleConnections()
	}
	if got := f.get(t, "/"); got.StatusCode != http.StatusTooManyRequests {
		t.Errorf("after two requests of 2/h: %d", got.StatusCode)
	}
}

// zeros is a file without an end.
type zeros struct{}

// Read implements [io.Reader].
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestEarlyAnswer has servers behind that answer without reading the body: the client
// gets the answer, and later requests get theirs.
func TestEarlyAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}))
	defer server.Close()
	f := start(t, mustURL(t, server.URL), 0, oneRule(t, "ip", "1000/s"), httplimit.ClientIP{})
	for _, size := range []int{1, 10_000, 200_000} {
		for range 5 {
			request := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", size, make([]byte, size))
			if got := f.raw(t, request); got != "413" {
				t.Errorf("a body of %d bytes: %q", size, got)
			}
		}
	}
	if got := f.get(t, "/"); got.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("later: %d", got.StatusCode)
	}
}
