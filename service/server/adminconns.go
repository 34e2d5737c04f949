package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of the connections of operators, less than the descriptors that those of clients
// leave.
const (
	mostAdmin = 32
	// mostStrangers is how many there may be that have shown no token.
	mostStrangers = 24
	// strangersOfOne is how many of these one address may have, but this machine.
	strangersOfOne = 8
	// leastAge is how long a connection has had to make itself known before it is closed
	// for another.
	leastAge = 100 * time.Millisecond
)

// AdminConns bounds the connections of operators. Beyond a bound, the connection that has
// been idle for longest and has shown no token is closed for the new one: of the address
// that has most of them, so that others are answered whoever holds the rest. It may be used
// from many goroutines at once.
type AdminConns struct {
	log *slog.Logger

	mu  sync.Mutex
	all map[*adminConn]bool
}

// NewAdminConns returns bounds. log receives refusals, without addresses.
func NewAdminConns(log *slog.Logger) *AdminConns {
	return &AdminConns{log: SampleLog(log), all: make(map[*adminConn]bool)}
}

// Listen returns a listener whose connections count.
func (c *AdminConns) Listen(ln net.Listener) net.Listener { return &adminListener{ln, c} }

type adminListener struct {
	net.Listener
	conns *AdminConns
}

// Accept implements [net.Listener].
func (l *adminListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		now := time.Now()
		a := &adminConn{Conn: conn, conns: l.conns, at: AddressOf(conn.RemoteAddr().String()), began: now, seen: now}
		if l.conns.admit(a) {
			return a, nil
		}
		_ = conn.Close() // it has had no answer, and gets none
		l.conns.log.Warn("a connection was closed at once", "why", "its address has as many at --admin as one may have (8)")
	}
}

// SetDeadline sets that of Accept, if the listener below has one.
func (l *adminListener) SetDeadline(t time.Time) error {
	if under, ok := l.Listener.(interface{ SetDeadline(t time.Time) error }); ok {
		return under.SetDeadline(t)
	}
	return errors.ErrUnsupported
}

// An adminConn is a connection of an operator, or of a stranger.
type adminConn struct {
	net.Conn
	conns *AdminConns
	at    Address

	began time.Time

	seen  time.Time // when it was accepted, or last answered; guarded by conns.mu, as is known
	known bool      // it has shown a token
}

// admit takes a connection in, in place of another where there must be one. It waits until
// that has had its time, unless it is of the same address.
func (c *AdminConns) admit(a *adminConn) bool {
	for {
		c.mu.Lock()
		other, own := c.instead(a.at)
		age := leastAge
		if other != nil {
			age = time.Since(other.began)
		}
		if age >= leastAge {
			delete(c.all, other)
			c.all[a] = true
		}
		c.mu.Unlock()
		switch {
		case age < leastAge && own:
			return false
		case age < leastAge:
			time.Sleep(leastAge - age)
			continue
		case other != nil:
			_ = other.Conn.Close() // this is the point
			c.log.Warn("a connection without a token was closed for another", "why", "--admin has as many as it may have (24 without a token, 32 in all)")
		}
		return true
	}
}

// instead returns the connection that one of an address takes the place of, nil if there is
// room, and whether that is for what its own address has. mu is held.
func (c *AdminConns) instead(at Address) (other *adminConn, own bool) {
	by, strangers, most := make(map[Address]int), 0, 0
	for a := range c.all {
		if !a.known {
			by[a.at.of()]++
			strangers++
			most = max(most, by[a.at.of()])
		}
	}
	own = by[at.of()] >= strangersOfOne && !at.addr.IsLoopback()
	full := strangers >= mostStrangers || len(c.all) >= mostAdmin
	if !own && !full {
		return nil, false
	}
	for a := range c.all {
		switch {
		case own && a.at.of() != at.of(), strangers > 0 && a.known, !own && strangers > 0 && by[a.at.of()] < most:
		case other == nil || a.seen.Before(other.seen):
			other = a
		}
	}
	return other, own
}

// Close implements [net.Conn].
func (a *adminConn) Close() error {
	err := a.Conn.Close() // the descriptor is free before another is let in
	a.conns.mu.Lock()
	defer a.conns.mu.Unlock()
	delete(a.conns.all, a)
	return err
}

// NetConn returns the connection below, as that of a TLS connection does.
func (a *adminConn) NetConn() net.Conn { return a.Conn }

// CloseWrite ends what is sent, as net/http does before it closes.
func (a *adminConn) CloseWrite() error {
	if tcp, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

type adminConnKey struct{}

// adminConnOf returns the connection of an operator below another; nil if there is none.
func adminConnOf(conn net.Conn) *adminConn {
	for conn != nil {
		if a, ok := conn.(*adminConn); ok {
			return a
		}
		below, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = below.NetConn()
	}
	return nil
}

// withAdminConn is ConnContext of [http.Server].
func withAdminConn(ctx context.Context, conn net.Conn) context.Context {
	if a := adminConnOf(conn); a != nil {
		return context.WithValue(ctx, adminConnKey{}, a)
	}
	return ctx
}

// noteIdle is ConnState of [http.Server].
func noteIdle(conn net.Conn, state http.ConnState) {
	if a := adminConnOf(conn); a != nil && state == http.StateIdle {
		a.note(false)
	}
}

// KnownToken notes that a request shows a token that lets its caller in: its connection is
// not closed for one that has shown none.
func KnownToken(r *http.Request) {
	if a, ok := r.Context().Value(adminConnKey{}).(*adminConn); ok {
		a.note(true)
	}
}

func (a *adminConn) note(known bool) {
	a.conns.mu.Lock()
	defer a.conns.mu.Unlock()
	a.seen, a.known = time.Now(), a.known || known
}
