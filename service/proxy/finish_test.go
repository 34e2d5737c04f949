package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"

	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/server"
)

// A deafServer never notices that its clients leave. It counts the requests that it works on.
type deafServer struct {
	now, most, asked atomic.Int64
	work             func(w http.ResponseWriter, r *http.Request)
}

func (d *deafServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.asked.Add(1)
	n := d.now.Add(1)
	defer d.now.Add(-1)
	for most := d.most.Load(); n > most && !d.most.CompareAndSwap(most, n); most = d.most.Load() {
	}
	d.work(w, r)
}

func deaf(t *testing.T, rules string, work func(w http.ResponseWriter, r *http.Request)) (*deafServer, *front) {
	t.Helper()
	d := &deafServer{work: work}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return d, start(t, mustURL(t, server.URL), time.Second, yaml(t, rules), httplimit.ClientIP{})
}

// A deadWriter is the writer of a client that has gone, which only a flush notices.
type deadWriter struct {
	*httptest.ResponseRecorder
	flushed chan struct{}
}

func (w deadWriter) FlushError() error {
	select {
	case w.flushed <- struct{}{}:
	default:
	}
	return net.ErrClosed
}

// TestLeaveBeforeStatus: clients leave before the status of their answer. What fails counts, under a rule
// for failures as under one for successes what succeeds; of a body that breaks off nobody knows.
func TestLeaveBeforeStatus(t *testing.T) {
	const whole, half = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nhi"
	for _, c := range []struct {
		count, request string
		answer         int
		want           int64
	}{
		{"[401]", whole, 401, 5}, {"[401]", whole, 200, 0}, {"[401]", half, 401, 5}, {"2xx", whole, 200, 5}, {"2xx", whole, 401, 0}, {"2xx", half, 200, 5}, {"[401]", whole, 503, 0},
	} {
		goOn := make(chan bool)
		d, f := deaf(t, "rules: [{name: proxy, key: [], limits: 9/d, count: {status: "+c.count+"}}]", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				return
			}
			<-goOn
			w.WriteHeader(c.answer)
		})
		for i := range int64(5) {
			conn := f.dial(t)
			_, _ = io.WriteString(conn, c.request)
			await.Until(t, "the server has it", func() bool { return d.asked.Load() == i+1 })
			_ = conn.Close()
		}
		time.Sleep(50 * time.Millisecond) // the proxy hears that they have left
		close(goOn)
		used := func() int64 {
			all, err := f.source.Policy().UsedOf(t.Context(), "proxy", "")
			if err != nil {
				t.Fatal(err)
			}
			return all[0].Limit.Count() - all[0].Remaining
		}
		await.Until(t, fmt.Sprintf("%s of %q: %d are used", c.count, c.request, c.want), func() bool { return d.now.Load() == 0 && used() == c.want })
	}
}

// TestFinishFlush: a request that goes on without its client is charged what its answer says,
// though the answer cannot be flushed.
func TestFinishFlush(t *testing.T) {
	w := deadWriter{httptest.NewRecorder(), make(chan struct{}, 1)}
	f := start(t, mustURL(t, "http://127.0.0.1:1"), time.Second, yaml(t, `rules: [{name: tokens, key: [header.x-customer], limits: [1000 per 10000h], cost: {usage: openai, reserve: 100}}, {name: all, key: [], limits: [5 in flight], finish: 30s}]`),
		httplimit.ClientIP{}, proxy.Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			body, rest := io.Pipe()
			go func() {
				_, _ = io.WriteString(rest, `{"usage":`)
				<-w.flushed
				_, _ = io.WriteString(rest, `{"total_tokens":7}}`)
				_ = rest.Close()
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Length": {"28"}}, ContentLength: 28, Body: body}, nil
		})})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Customer", "a")
	func() {
		defer func() {
			if why := recover(); why != http.ErrAbortHandler {
				t.Errorf("the answer ends with %v", why)
			}
		}()
		f.ServeHTTP(w, r)
	}()
	if used := usageOf(t, f, "tokens", "a"); used != 7 {
		t.Errorf("charged %d, want 7", used)
	}
}

// TestFinishEnds: after its client has left, a request holds its place for as long as its rule says. It
// goes on if it was read whole and its answer is no stream; any other request is cancelled.
func TestFinishEnds(t *testing.T) {
	const (
		whole = "GET %s HTTP/1.1\r\nHost: h\r\n\r\n"
		half  = "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf"
	)
	for _, test := range []struct {
		name, finish, path, request string
		goesOn, holds               bool
	}{
		{"nothing said", "", "/", whole, false, false},
		{"whole", ", finish: 1h", "/", whole, true, true},
		{"answer begun", ", finish: 1h", "/begun", whole, true, true},
		{"stream", ", finish: 1h", "/stream", whole, false, true},
		{"half a body", ", finish: 1h", "/", half, false, true},
		{"whole, as long as it says", ", finish: 50ms", "/", whole, false, false},
		{"stream, as long as it says", ", finish: 50ms", "/stream", whole, false, false},
		{"half a body, as long as it says", ", finish: 50ms", "/", half, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			begun, end, cancelled := make(chan bool, 1), make(chan bool), make(chan bool, 1)
			_, f := deaf(t, "rules: [{name: proxy, key: [], limits: [1 in flight]"+test.finish+"}]", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/stream" {
					w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				}
				if r.URL.Path != "/" {
					_, _ = io.WriteString(w, "begun\n")
					_ = http.NewResponseController(w).Flush()
				}
				begun <- true
				_, _ = io.ReadAll(r.Body)
				select {
				case <-end:
				case <-r.Context().Done():
					cancelled <- true
				}
			})
			conn := f.dial(t)
			fmt.Fprintf(conn, test.request, test.path)
			<-begun
			_ = conn.Close()
			if !test.goesOn {
				<-cancelled
			}
			if test.holds {
				for range 20 {
					if a := f.get(t, "/"); a.StatusCode != http.StatusTooManyRequests {
						t.Fatalf("beside a request that holds its place: %d", a.StatusCode)
					}
				}
			}
			if test.goesOn {
				end <- true
			} else if test.holds {
				f.stop()
			}
			for f.source.Policy().InFlight()["proxy"] > 0 {
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// TestFinishHolds has clients that leave while a server works that reads nothing and notices nothing:
// however they leave, it works on no more requests than the limit.
func TestFinishHolds(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n"
	for name, test := range map[string]struct {
		request string
		stays   bool // and sends no more
	}{
		"whole":             {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", false},
		"stream":            {"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n", false},
		"some of a body":    {post + strings.Repeat("b", 10), false},
		"more than is kept": {post + strings.Repeat("b", 1e6), false},
		"a slow body":       {post + strings.Repeat("b", 10), true},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan bool)
			d := &deafServer{work: func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/stream" {
					w.Header().Set("Content-Type", "text/event-stream")
					_ = http.NewResponseController(w).Flush()
				}
				<-release
			}}
			server := httptest.NewServer(d)
			defer server.Close()
			defer close(release)
			f := startServing(t, yaml(t, "rules: [{name: proxy, key: [], limits: [5 in flight], finish: 1h}]"),
				proxy.Options{Upstream: mustURL(t, server.URL), BodyStall: 20 * time.Millisecond}, proxy.ServeOptions{Drain: time.Second})
			for n := range int64(30) {
				conn := f.dial(t)
				sent := make(chan bool)
				go func() {
					_, _ = io.WriteString(conn, test.request) // fails if the proxy denies it before it has all
					close(sent)
				}()
				await.Until(t, "a decision", func() bool {
					passed, denied := f.Counts()
					return passed+denied == n+1 && d.asked.Load() == passed
				})
				if test.stays {
					want := "HTTP/1.1 408 Request Timeout"
					if n >= 5 {
						want = "HTTP/1.1 429 Too Many Requests"
					}
					if status, err := bufio.NewReader(conn).ReadString('\r'); status != want+"\r" {
						t.Errorf("request %d: %q, %v", n, status, err)
					}
				}
				_ = conn.Close()
				<-sent
			}
			if passed, _ := f.Counts(); passed != 5 {
				t.Errorf("%d passed, want 5", passed)
			}
		})
	}
}

// TestFinishBounded has clients leave within the bodies of more requests than may hold a place so: the
// first hold theirs, and the places of the others are free. None holds a connection to the server.
func TestFinishBounded(t *testing.T) {
	release := make(chan bool)
	d := &deafServer{work: func(http.ResponseWriter, *http.Request) { <-release }}
	behind := httptest.NewServer(d)
	defer behind.Close()
	defer close(release)
	connections := server.NewRequests(1, 1, nil)
	f := startServing(t, yaml(t, "rules: [{name: proxy, key: [], limits: [5 in flight], finish: 1h}]"),
		proxy.Options{Upstream: mustURL(t, behind.URL), MaxWaiting: 12, Requests: connections}, proxy.ServeOptions{Drain: time.Millisecond})
	for n := range int64(10) {
		leaveWithin(t, f, d, n)
		held := min(n+1, 2) // fewer than a quarter of what is free
		await.Until(t, "the other places are free", func() bool { return f.source.Policy().InFlight()["proxy"] == held })
		await.Until(t, "the connection is free", func() bool {
			leave, why := connections.Enter(server.AddressOf(f.address))
			if why == "" {
				leave()
			}
			return why == ""
		})
	}
}

// leaveWithin sends a part of a request, and leaves once d has it.
func leaveWithin(t *testing.T, f *front, d *deafServer, before int64) {
	t.Helper()
	conn := f.dial(t)
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf")
	await.Until(t, "the server has it", func() bool { return d.asked.Load() == before+1 })
	_ = conn.Close()
}

// TestGoneFromLine: a request is not sent if its client leaves while the request waits, with any body or
// none.
func TestGoneFromLine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not say that a client has gone whose body is not read")
	}
	each := 200
	if testing.Short() {
		each = 20
	}
	for _, finish := range []string{"", ", finish: 1h"} {
		hold := make(chan bool)
		d, f := deaf(t, "rules: [{name: proxy, key: [], limits: [1 in flight], wait: 1h"+finish+"}]", func(http.ResponseWriter, *http.Request) { <-hold })
		release := sync.OnceFunc(func() { close(hold) })
		t.Cleanup(release)
		first := make(chan int, 1)
		go func() { first <- f.get(t, "/").StatusCode }()
		for d.asked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		var line []net.Conn
		for range each {
			for _, sent := range []string{
				"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
				"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi",
				"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nhi",
				"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
				"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
			} {
				conn := f.dial(t)
				_, _ = io.WriteString(conn, sent)
				line = append(line, conn)
			}
		}
		waiting := func(want int) {
			t.Helper()
			await.Until(t, fmt.Sprint(want, " wait"), func() bool { return gauge(t, f.observer, "stint_proxy_waiting") == float64(want) })
		}
		waiting(len(line))
		for _, conn := range line {
			_ = conn.Close()
		}
		waiting(0)
		release()
		<-first
		if n := d.asked.Load(); n != 1 {
			t.Errorf("%d that left are sent", n-1)
		}
	}
}
