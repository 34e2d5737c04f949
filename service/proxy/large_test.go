package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestEarlyAnswerEndsConnection has an upstream that answers before it has the body. What the client
// sends after that belongs to the body, even if it looks like a request, and the connection ends with
// the body.
func TestEarlyAnswerEndsConnection(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var asked sync.Map // what came behind the first head of each connection
	go func() {
		for n := 0; ; n++ {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for line := ""; line != "\r\n" && err == nil; {
					line, err = in.ReadString('\n')
				}
				fmt.Fprint(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
				rest, _ := io.ReadAll(in) // until the proxy closes it
				asked.Store(n, string(rest))
			}()
		}
	}()
	f := start(t, mustURL(t, "http://"+server.Addr().String()), 0, oneRule(t, "ip", "1000/s"), httplimit.ClientIP{})
	const next = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n"
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(next), next)
	for name, c := range map[string]struct{ head, begins, goesOn string }{
		"a length":               {fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d", 5+len(next)), "hello", next},
		"nothing of it is there": {fmt.Sprintf("GET / HTTP/1.1\r\nContent-Length: %d", len(next)), "", next},
		"a long one":             {"POST / HTTP/1.1\r\nContent-Length: 1000000", "hello", strings.Repeat(next, 1000)},
		"chunks":                 {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked", "5\r\nhello\r\n", chunk},
		"of HTTP/1.0":            {fmt.Sprintf("POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: %d", 5+len(next)), "hello", next},
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				conn := f.dial(t)
				_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // an answer that never comes is none
				fmt.Fprint(conn, c.head+"\r\nHost: h\r\n\r\n"+c.begins)
				in := bufio.NewReader(conn)
				answer, err := http.ReadResponse(in, nil)
				if err != nil || answer.StatusCode != http.StatusRequestEntityTooLarge || !answer.Close {
					t.Fatalf("%+v, %v; want 413, after which the connection ends", answer, err)
				}
				_, _ = io.Copy(io.Discard, answer.Body) // two bytes
				fmt.Fprint(conn, c.goesOn+next)
				if more, _ := io.ReadAll(in); len(more) > 0 { // a reset is an end, too
					t.Errorf("a second answer: %q", more)
				}
			}
		})
	}
	f.client.CloseIdleConnections()
	asked.Range(func(_, rest any) bool {
		if strings.Contains(rest.(string), "X-Forwarded") {
			t.Errorf("the body came as a request: %q", rest)
		}
		return true
	})
	if said := f.log.String(); strings.Contains(said, "panic") {
		t.Errorf("%.2000s", said)
	}
}
