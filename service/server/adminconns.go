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

// Bounds of the connections of operators. Together they are fewer than the descriptors
// that are reserved beside the connections of clients.
const (
	mostAdmin = 32
	// mostStrangers is how many connections may have shown no token.
	mostStrangers = 24
	// strangersOfOne is how many of those one address may have, unless it is this machine.
	strangersOfOne = 8
	// leastAge is how long a connection may take to show a token before it can be closed
	// to make room.
	leastAge = 100 * time.Millisecond
)

// AdminConns bounds the connections of operators. Beyond a bound, a new connection takes
// the place of one that has shown no token: the longest idle one of the address that has
// most of them. So no address can shut out the others. It may be used from many goroutines
// at once.
type AdminConns struct {
	log *slog.Logger

	mu  sync.Mutex
	all map[*adminConn]bool
}

// NewAdminConns returns bounds. log receives refusals, without addresses.
func NewAdminConns(log *slog.Logger) *AdminConns {
	return &AdminConns{log: SampleLog(log), all: make(map[*adminConn]bool)}
}

// Listen returns a listener whose connections are counted.
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
		_ = conn.Close() // nothing was sent on it
		l.conns.log.Warn("a connection was closed at once", "why", "its address has as many at --admin as one may have (8)")
	}
}

// SetDeadline sets the deadline of Accept, if the listener below has one.
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

// admit counts a connection, and closes another one if a bound requires that. If the other
// is younger than leastAge, it waits, or refuses if both are of the same address.
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
			_ = other.Conn.Close() // an error changes nothing: it is closed
			c.log.Warn("a connection without a token was closed for another", "why", "--admin has as many as it may have (24 without a token, 32 in all)")
		}
		return true
	}
}

// instead returns the connection to close for a new one of an address, nil if there is
// room, and whether the reason is the bound of that address. mu is held.
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
	err := a.Conn.Close() // frees the descriptor before a connection is let in for it
	a.conns.mu.Lock()
	defer a.conns.mu.Unlock()
	delete(a.conns.all, a)
	return err
}

// NetConn returns the connection below, as [tls.Conn.NetConn] does.
func (a *adminConn) NetConn() net.Conn { return a.Conn }

// CloseWrite ends the sending side: net/http calls it before it closes a connection.
func (a *adminConn) CloseWrite() error {
	if tcp, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

type adminConnKey struct{}

// adminConnOf returns the adminConn that a connection, such as one of TLS, is built on;
// nil if there is none.
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

// KnownToken notes that a request shows a valid token: its connection is not closed to
// make room for others.
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
