package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/service/server"
)

const (
	// defaultInFlight is how many requests may wait for the upstream at once.
	defaultInFlight = 1000
	// defaultLag is how long a request may have been unread.
	defaultLag = time.Second
)

// overloaded returns why a request is refused at once, or "": too many wait already, or this one was
// unread for so long that its client has likely given up. To refuse it leaves time for requests that
// can still be answered in time.
func (h *Handler) overloaded(r *http.Request) string {
	v := visitOf(r)
	if why := h.pending.Full(v.from); why != "" {
		return why // asking takes the place, but after a charge
	}
	leave, why := h.enter(r)
	if why != "" {
		return why
	}
	leave() // it counts once the upstream is asked, since a request that waits holds no connection
	if h.o.MaxLag > 0 && lag(r.Context()) > h.o.MaxLag {
		return "requests come faster than they can be read"
	}
	why = h.waiting.Take(v.from, 1)
	v.counts = why == ""
	return why
}

// enter counts a request until its answer has ended, or says why it may not hold another
// connection to the upstream. Calls of gRPC share connections, and have a bound of their own.
func (h *Handler) enter(r *http.Request) (leave func(), why string) {
	from := visitOf(r).from
	switch {
	case isGRPC(r.Header) && h.target.Scheme == "http":
		if why = h.calls.Take(from, 1); why != "" {
			return nil, why
		}
		return func() { h.calls.Add(from, -1) }, ""
	case h.o.Requests == nil:
		return func() {}, ""
	}
	return h.o.Requests.Enter(from)
}

func (h *Handler) shed(w http.ResponseWriter, r *http.Request, why string) {
	h.noteShed(why)
	w.Header().Set("Retry-After", "1")
	answer(w, r, http.StatusServiceUnavailable, why)
}

func (h *Handler) noteShed(why string) {
	h.refused.Add(1)
	h.o.Observer.Overloaded(entrypoint)
	h.sampled.Warn("a request was refused at once", "why", why)
}

// asking counts a request from when the upstream is asked until it begins to answer: a stream that has
// begun is no load to be shed. While a request waits for its own client, it counts of its address alone:
// a few clients that do not send their bodies must not have everybody else refused, and a client that
// ends many bodies at once must not exceed its bound.
type asking struct {
	next http.RoundTripper
	n    server.Load
}

// A busy says why the upstream is not asked now.
type busy string

func (b busy) Error() string { return string(b) }

// RoundTrip implements [http.RoundTripper].
func (a asking) RoundTrip(r *http.Request) (*http.Response, error) {
	v := visitOf(r)
	if why := a.n.Take(v.from, 1); why != "" {
		return nil, busy(why)
	}
	defer a.n.Add(v.from, -1)
	if r.Body != nil && r.Body != http.NoBody {
		b := &askedBody{ReadCloser: r.Body, n: a.n}
		if isGRPC(r.Header) {
			b.client = v.body
		}
		defer b.answered()
		r = r.WithContext(r.Context()) // a copy: a RoundTripper must not change its request
		r.Body = b
	}
	answer, err := a.next.RoundTrip(r)
	if err == nil {
		v.finish.answers(answer)
	}
	return answer, err
}

// An askedBody takes its request out of the count in all while it waits for the client. The body may
// still be read after the upstream has begun to answer.
type askedBody struct {
	io.ReadCloser
	n      server.Load
	client *pacedBody // to be closed with it; nil for HTTP/1.1, whose body reads on when it is closed

	mu      sync.Mutex
	waiting bool // for the client
	begun   bool // the upstream has begun to answer, so the request counts no more
}

// Read implements [io.Reader].
func (b *askedBody) Read(p []byte) (int, error) {
	b.waits(true)
	defer b.waits(false)
	return b.ReadCloser.Read(p)
}

// Close implements [io.Closer]. A server may end a gRPC stream while the client may still send: the
// transport then closes the body, and waits until nobody reads it. [httputil.ReverseProxy] keeps that from
// the client's body.
func (b *askedBody) Close() error {
	if b.client != nil {
		_ = b.client.Close() // it cannot fail
	}
	return b.ReadCloser.Close()
}

func (b *askedBody) waits(now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(now)
}

func (b *askedBody) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(false)
	b.begun = true
}

func (b *askedBody) set(waiting bool) {
	switch {
	case b.begun || b.waiting == waiting:
	case waiting:
		b.n.Idle(1)
	default:
		b.n.Idle(-1)
	}
	b.waiting = waiting
}

// A clientConn is what is known about the connection of a client.
type clientConn struct {
	answers *answerConn                  // nil if there is no bound on how slowly it may read
	unread  func() (time.Duration, bool) // how long ago its last byte came; nil if the system does not say
	hungUp  func() (bool, bool)          // whether the client has hung up; nil if the system does not say
	served  context.Context              // ends with the listener, not with the connection
	left    atomic.Int64                 // requests that go on though their client has left
	idle    atomic.Int64                 // when its last request was answered, in Unix nanoseconds
}

type clientConnKey struct{}

// withConn is the ConnContext of [http.Server].
func withConn(ctx context.Context, conn net.Conn) context.Context {
	below := underneath(conn)
	c := &clientConn{served: ctx, answers: answerConnOf(conn), unread: sinceData(below), hungUp: hungUp(below)}
	return context.WithValue(ctx, clientConnKey{}, c)
}

// lag returns how long a request was unread; 0 if the system does not say. The time before the answer
// to the request before it does not count.
func lag(ctx context.Context) time.Duration {
	c, ok := ctx.Value(clientConnKey{}).(*clientConn)
	if !ok || c.unread == nil {
		return 0
	}
	since, ok := c.unread()
	if idle := c.idle.Load(); ok && idle != 0 {
		since = min(since, time.Since(time.Unix(0, idle)))
	}
	return since
}

// answered notes that the last request of a connection was answered now.
func answered(ctx context.Context) {
	if c, ok := ctx.Value(clientConnKey{}).(*clientConn); ok {
		c.idle.Store(time.Now().UnixNano())
	}
}
