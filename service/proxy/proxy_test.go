package proxy_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rules"
)

// TestMain runs the tests, or, in a child process of a benchmark, its peers.
func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv("STINT_BENCH")); len(args) > 0 {
		if err := bench(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m, goleak.Find)
}

// A front is a proxy that runs on a real listener.
type front struct {
	*proxy.Handler
	address  string
	source   *rules.Source
	observer *observe.Observer
	client   *http.Client
	log      *syncBuffer
	stop     context.CancelFunc
	served   chan error // what Serve returned
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// upstreamOf serves a handler until the test ends, and returns its URL.
func upstreamOf(t testing.TB, behind http.HandlerFunc) *url.URL {
	t.Helper()
	server := httptest.NewServer(behind)
	t.Cleanup(server.Close)
	return mustURL(t, server.URL)
}

// serve puts a proxy in front of a handler; both end with the test.
func serve(t *testing.T, behind http.HandlerFunc, drain time.Duration, key string, limits ...string) *front {
	t.Helper()
	return start(t, upstreamOf(t, behind), drain, oneRule(t, key, limits...), httplimit.ClientIP{})
}

// start puts a proxy in front of a URL.
func start(t testing.TB, target *url.URL, drain time.Duration, f *rules.File, client httplimit.ClientIP, options ...proxy.Options) *front {
	t.Helper()
	var o proxy.Options
	if len(options) > 0 {
		o = options[0]
	}
	o.Upstream, o.Client = target, client
	return startServing(t, f, o, proxy.ServeOptions{Drain: drain})
}

// startServing is start with all options.
func startServing(t testing.TB, f *rules.File, o proxy.Options, served proxy.ServeOptions) *front {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := &front{
		address: ln.Addr().String(),
		client:  &http.Client{Transport: &http.Transport{}},
		log:     new(syncBuffer),
		served:  make(chan error, 1),
		source:  o.Source,
	}
	if front.source == nil {
		front.source = source(t, f)
	}
	logger := slog.New(slog.NewTextHandler(front.log, nil))
	front.observer = observe.New(observe.Options{Log: logger})
	o.Source, o.Observer, o.Log, served.Log = front.source, front.observer, logger, logger
	o.MaxLag = cmp.Or(o.MaxLag, -1) // a busy machine may take a second to read a request
	front.Handler, err = proxy.NewHandler(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	front.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		front.served <- proxy.Serve(ctx, ln, front.Handler, served)
	}()
	t.Cleanup(func() {
		front.client.CloseIdleConnections()
		stop()
		<-done
		front.Close()
		front.observer.Close()
	})
	return front
}

// dial returns a connection to the proxy, which ends with the test.
func (f *front) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // again, if the test has
	return conn
}

// get asks for a path; header is name, value, name, value.
func (f *front) get(t testing.TB, path string, header ...string) *http.Response {
	t.Helper()
	return f.send(t, http.MethodGet, path, http.NoBody, header...)
}

// send is get with a method and a body.
func (f *front) send(t testing.TB, method, path string, body io.Reader, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.address+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	answer, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() }) // read to its end, or not at all
	return answer
}

func TestUpstreamHost(t *testing.T) {
	h := handler(t, oneRule(t, "ip", "10/s"), proxy.Options{
		Upstream:     &url.URL{Scheme: "https", Host: "upstream.example", Path: "/base"},
		UpstreamHost: true,
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Host != "" && r.Host != "upstream.example" || r.URL.String() != "https://upstream.example/base/x" {
				t.Errorf("asked %s for %s", r.Host, r.URL)
			}
			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
		}),
	})
	if w := get(h, "/x"); w.Code != http.StatusNoContent {
		t.Errorf("answered %d", w.Code)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// empty is an upstream that answers 200, and nothing more.
var empty = roundTrip(func(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
})

// echo upgrades a connection and sends back what it is sent.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		http.Error(w, "no upgrade", http.StatusBadRequest)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, rw) // until one of them closes
}

// upgrade opens an upgraded connection through the proxy.
func (f *front) upgrade(t *testing.T) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn := f.dial(t)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(answer.Status)
	}
	return conn, r, answer
}

// After a stop, an upgraded connection has as much time as requests in flight. Then it is closed.
func TestStopEndsUpgrades(t *testing.T) {
	f := serve(t, echo, time.Millisecond, "ip", "10/s")
	_, r, _ := f.upgrade(t)
	f.stop()
	if err := <-f.served; err != nil {
		t.Error(err)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
}

func TestStopWaitsForUpgrades(t *testing.T) {
	f := serve(t, echo, time.Minute, "ip", "10/s")
	conn, r, _ := f.upgrade(t)
	f.stop()
	f.untilDeaf()
	fmt.Fprintln(conn, "still here")
	if got, err := r.ReadString('\n'); err != nil || got != "still here\n" {
		t.Errorf("while it stops: %q, %v", got, err)
	}
	_ = conn.Close() // this is the point
	if err := <-f.served; err != nil {
		t.Error(err)
	}
}

func TestUpstreamDown(t *testing.T) {
	target := &url.URL{Scheme: "http", Host: freeport.Addr(t)} // where nothing listens
	f := start(t, target, time.Minute, oneRule(t, "ip", "10/s"), httplimit.ClientIP{})
	answer := f.get(t, "/")
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusBadGateway || string(body) != "stint: the server behind did not answer\n" {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	if log := f.log.String(); !strings.Contains(log, "connection refused") || !strings.Contains(log, "upstream="+target.String()) || strings.Contains(strings.ReplaceAll(log, target.String(), ""), "127.0.0.1") {
		t.Errorf("log: %s", log)
	}
}

// TestStopLetsRequestsFinish stops while a request is under way, over HTTP/1.1 and over
// HTTP/2 in the clear: it is answered.
func TestStopLetsRequestsFinish(t *testing.T) {
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	for _, over := range []http.RoundTripper{nil, h2} {
		arrived, finish := make(chan struct{}), make(chan struct{})
		f := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-finish
			fmt.Fprint(w, "done")
		}, time.Minute, "ip", "10/s")
		if over != nil {
			f.client = &http.Client{Transport: over}
		}
		body := make(chan string)
		go func() {
			answer, err := f.client.Get("http://" + f.address)
			if err != nil {
				body <- err.Error()
				return
			}
			defer answer.Body.Close()
			b, _ := io.ReadAll(answer.Body)
			body <- string(b)
		}()
		<-arrived
		f.stop()
		f.untilDeaf()
		close(finish)
		if got := <-body; got != "done" {
			t.Errorf("the request in flight was answered %q", got)
		}
		if err := <-f.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

// untilDeaf returns when the proxy no longer listens.
func (f *front) untilDeaf() {
	for {
		conn, err := net.Dial("tcp", f.address)
		if err != nil {
			return
		}
		_ = conn.Close() // it was too early
	}
}

// A client that hangs up while its request with a body queues is noticed, and
// frees its place.
func TestHangUpInQueue(t *testing.T) {
	f := serve(t, func(http.ResponseWriter, *http.Request) {}, time.Millisecond, "ip", "1/h burst 1 leaky_queue")
	if got := f.get(t, "/"); got.StatusCode != http.StatusOK {
		t.Fatalf("the first is answered %d", got.StatusCode)
	}
	for range 2 { // each finds the one place free
		conn := f.dial(t)
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
		f.until(t, false) // it queues
		if got := f.get(t, "/"); got.StatusCode != http.StatusTooManyRequests {
			t.Errorf("with the queue full, another is answered %d", got.StatusCode)
		}
		_ = conn.Close() // this is the point
		f.until(t, true)
	}
}

// until returns once the queue has room for this machine's address, or once it has none.
func (f *front) until(t *testing.T, room bool) {
	t.Helper()
	await.Until(t, fmt.Sprint("the queue has room: ", room), func() bool {
		var r policy.Result
		err := f.source.Policy().Peek(t.Context(), policy.Map{"ip": "127.0.0.1"}, 1, &r)
		return err == nil && r.Decision.Allowed == room
	})
}
