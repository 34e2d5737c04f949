package proxy

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// defaultInFlight is how many requests may wait for the upstream at once.
	defaultInFlight = 1000
	// defaultLag is how long a request may have lain unread.
	defaultLag = time.Second
)

// overloaded says why a request is not taken on: too many wait for the upstream
// already, or this one has lain so long that its client has likely given up.
// What is refused at once leaves time for what can still be answered in time.
func (h *Handler) overloaded(r *http.Request) string {
	if h.o.MaxInFlight > 0 && h.asked.Load() >= int64(h.o.MaxInFlight) {
		return "too many requests wait for the server behind"
	}
	if h.o.MaxLag > 0 && lag(r.Context()) > h.o.MaxLag {
		return "requests come faster than they can be read"
	}
	return ""
}

// shed refuses a request at once.
func (h *Handler) shed(w http.ResponseWriter, r *http.Request, why string) {
	h.refused.Add(1)
	h.o.Observer.Overloaded(door)
	h.sparing.Warn("a request was refused at once", "why", why)
	w.Header().Set("Retry-After", "1")
	answer(w, r, http.StatusServiceUnavailable, why)
}

// asking counts requests from when the upstream is asked until it begins to
// answer: streams that have begun are no load to be shed.
type asking struct {
	next http.RoundTripper
	n    *atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (a asking) RoundTrip(r *http.Request) (*http.Response, error) {
	a.n.Add(1)
	defer a.n.Add(-1)
	return a.next.RoundTrip(r)
}

// A clientConn is what is known of a connection.
type clientConn struct {
	unread func() (time.Duration, bool) // since its last byte came
	idle   atomic.Int64                 // when its last request was answered, in Unix nanoseconds
}

type clientConnKey struct{}

// withConn is ConnContext of [http.Server].
func withConn(ctx context.Context, conn net.Conn) context.Context {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	unread := sinceData(conn)
	if unread == nil {
		return ctx
	}
	return context.WithValue(ctx, clientConnKey{}, &clientConn{unread: unread})
}

// lag returns for how long a request has lain unread, 0 where the system does
// not say. A request that was sent behind another has waited for that one.
func lag(ctx context.Context) time.Duration {
	c, ok := ctx.Value(clientConnKey{}).(*clientConn)
	if !ok {
		return 0
	}
	since, ok := c.unread()
	if idle := c.idle.Load(); ok && idle != 0 {
		since = min(since, time.Since(time.Unix(0, idle)))
	}
	return since
}

// answered notes that a connection has had its answer.
func answered(ctx context.Context) {
	if c, ok := ctx.Value(clientConnKey{}).(*clientConn); ok {
		c.idle.Store(time.Now().UnixNano())
	}
}
