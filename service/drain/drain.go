// Package drain stops servers without losing clients that have just connected.
//
// Closing a listener resets the connections that wait to be accepted. And net/http drops the first
// request of a connection, unanswered, if it reads it while the server shuts down. On a busy
// machine there always are some of both.
package drain

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// toBegin is how long connected clients may take to send their first request when the server stops.
// Clients that connected to ask something have sent it by then.
const toBegin = time.Second

// An HTTP is an HTTP server on a listener.
type HTTP struct {
	server  *http.Server
	queue   *Listener
	stopped chan error

	leaving atomic.Bool
	fresh   atomic.Int64 // connections on which no request has begun
	conns   sync.Map     // those connections, net.Conn to *conn
}

// A conn is the state of a connection.
type conn struct{ begun atomic.Bool }

type connKey struct{}

// NewHTTP returns a server on a listener. It wraps the server's Handler, ConnContext and ConnState;
// nothing else may use them afterwards.
func NewHTTP(server *http.Server, ln net.Listener) *HTTP {
	h := &HTTP{server: server, queue: NewListener(ln), stopped: make(chan error, 1)}
	next, withConn, state := server.Handler, server.ConnContext, server.ConnState
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok && !c.begun.Load() {
			h.begin(c)
		}
		if h.leaving.Load() && r.Header["Upgrade"] == nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
	server.ConnContext = func(ctx context.Context, with net.Conn) context.Context {
		if withConn != nil {
			ctx = withConn(ctx, with)
		}
		c := new(conn)
		h.fresh.Add(1)
		h.conns.Store(with, c)
		return context.WithValue(ctx, connKey{}, c)
	}
	server.ConnState = func(with net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			if c, ok := h.conns.LoadAndDelete(with); ok {
				h.begin(c.(*conn))
			}
		}
		if state != nil {
			state(with, s)
		}
	}
	return h
}

// begin notes that a connection has sent its first request, or never will.
func (h *HTTP) begin(c *conn) {
	if c.begun.CompareAndSwap(false, true) {
		h.fresh.Add(-1)
	}
}

// Serve serves, over TLS if the server has a configuration for it, until ctx is done. Then it calls
// onStop and goes on for the time notice. Each answer then closes its connection, so that clients
// go elsewhere without losing a request. The caller must then call Stop and Close, unless Serve
// returns an error, which says why it ended earlier.
func (h *HTTP) Serve(ctx context.Context, onStop func(), notice time.Duration) error {
	go func() {
		if h.server.TLSConfig != nil {
			h.stopped <- h.server.ServeTLS(h.queue, "", "")
		} else {
			h.stopped <- h.server.Serve(h.queue)
		}
	}()
	select {
	case err := <-h.stopped:
		return err
	case <-ctx.Done():
	}
	onStop()
	h.leaving.Store(true)
	select {
	case err := <-h.stopped:
		return err
	case <-time.After(notice):
		return nil
	}
}

// Stop accepts the connections that wait now, and no later ones. It gives all clients a moment to
// send their first request, and returns when all requests have been answered or ctx is done, like
// [http.Server.Shutdown]. After ctx is done, call Close to end the remaining connections.
func (h *HTTP) Stop(ctx context.Context) error {
	if h.queue.Empty() {
		err := <-h.stopped
		h.stopped <- err // for Done
	}
	soon := time.After(toBegin)
	for waiting := true; waiting && h.fresh.Load() > 0; {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-soon:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	return h.server.Shutdown(ctx)
}

// Close closes all connections, and returns when the server has ended.
func (h *HTTP) Close() error {
	err := h.server.Close()
	<-h.stopped
	return err
}

const (
	// empty is how long nothing must come for a queue to count as empty. tries is how often that
	// must happen, since a wait may end before it has begun.
	empty = 200 * time.Microsecond
	tries = 3
	// bound ends the wait for an empty queue while clients keep coming. Connections that are left
	// then came in the last moment.
	bound = 250 * time.Millisecond
)

// deadlines is implemented by listeners of the kernel, and by wrappers that pass the method on.
type deadlines interface{ SetDeadline(t time.Time) error }

// A Listener can accept the connections that wait and then close: see Empty. Accept may be called
// from one goroutine.
type Listener struct {
	net.Listener
	until atomic.Pointer[time.Time] // set by Empty
}

// NewListener returns a Listener around ln.
func NewListener(ln net.Listener) *Listener { return &Listener{Listener: ln} }

// Empty makes Accept return the connections that wait, then close the listener and return
// [net.ErrClosed]. It returns false and does nothing where the listener has no deadlines.
func (l *Listener) Empty() bool {
	under, ok := l.Listener.(deadlines)
	if !ok || under.SetDeadline(time.Time{}) != nil {
		return false
	}
	until := time.Now().Add(bound)
	l.until.Store(&until)
	_ = under.SetDeadline(time.Now()) // wakes Accept
	return true
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	for waited := 0; ; {
		until := l.until.Load()
		if until != nil {
			if waited == tries || time.Now().After(*until) {
				_ = l.Close()
				return nil, net.ErrClosed
			}
			_ = l.Listener.(deadlines).SetDeadline(time.Now().Add(empty)) // Empty has set one
		}
		conn, err := l.Listener.Accept()
		if late, ok := errors.AsType[net.Error](err); !ok || !late.Timeout() {
			return conn, err
		}
		if until != nil {
			waited++
		}
	}
}
