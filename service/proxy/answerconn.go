package proxy

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// An answerListener accepts connections as an answerConn.
type answerListener struct {
	net.Listener
	pace pace
}

// Accept implements [net.Listener].
func (l answerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &answerConn{Conn: conn, acknowledged: acknowledged(underneath(conn)), pace: l.pace}, nil
}

// SetDeadline sets the deadline of Accept, if the listener below can have one.
func (l answerListener) SetDeadline(t time.Time) error {
	if under, ok := l.Listener.(interface{ SetDeadline(t time.Time) error }); ok {
		return under.SetDeadline(t)
	}
	return errors.ErrUnsupported
}

// An answerConn fails if its client takes too long to read what is written. Time counts only while a
// write waits for the client, so a stream may be silent for any time. The bound holds for all that is
// written: answers, what net/http buffers until after them, upgraded connections, and HTTP/2 frames.
type answerConn struct {
	net.Conn
	acknowledged func() (int64, bool) // bytes that the client's system has got; nil if ours does not say
	written      atomic.Int64

	mu    sync.Mutex
	pace  pace
	seen  int64     // how many acknowledged bytes have been counted
	until time.Time // the deadline that the user of the connection has set
}

// Write implements [net.Conn].
func (c *answerConn) Write(p []byte) (n int, err error) {
	for {
		began := c.arm()
		k, err := c.Conn.Write(p[n:])
		n += k
		c.written.Add(int64(k))
		if err == nil {
			c.wrote(time.Since(began), k)
			return n, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !c.goOn(k) {
			return n, err
		}
	}
}

// arm makes the next write return after one step at the latest, so that goOn can look at it.
func (c *answerConn) arm() (now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = time.Now()
	deadline := now.Add(c.pace.step())
	if !c.until.IsZero() && c.until.Before(deadline) {
		deadline = c.until
	}
	_ = c.Conn.SetWriteDeadline(deadline) // a closed connection fails when it is written to
	return now
}

func (c *answerConn) wrote(waited time.Duration, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := int64(0)
	if c.acknowledged == nil || c.pace.left < c.pace.stall/2 {
		taken = c.taken(n) // while more time is left, it is enough to count later
	}
	c.pace.spend(waited, taken)
	c.pace.left = max(c.pace.left, 1) // the next write may not wait at all
}

// goOn looks at a write that has waited for a step, and reports whether the client has time left. Room
// in our system's buffer comes in large pieces, so a slow client is judged by what its own system has
// acknowledged.
func (c *answerConn) goOn(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() && !time.Now().Before(c.until) {
		return false
	}
	return c.pace.spend(c.pace.step(), c.taken(n))
}

// taken returns how many bytes the client has taken since the last call; n, which was written, if the
// system does not say.
func (c *answerConn) taken(n int) int64 {
	if c.acknowledged != nil {
		if all, ok := c.acknowledged(); ok {
			last := c.seen
			c.seen = all
			return all - last
		}
	}
	return int64(n)
}

// SetWriteDeadline implements [net.Conn].
func (c *answerConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements [net.Conn].
func (c *answerConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// NetConn returns the connection below, like the method of [crypto/tls.Conn].
func (c *answerConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the sending side. net/http calls it before it closes a connection.
func (c *answerConn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// below returns the connection that conn wraps.
func below(conn net.Conn) (net.Conn, bool) {
	inner, ok := conn.(interface{ NetConn() net.Conn })
	if !ok {
		return nil, false
	}
	return inner.NetConn(), true
}

// underneath returns the innermost connection.
func underneath(conn net.Conn) net.Conn {
	for {
		next, ok := below(conn)
		if !ok {
			return conn
		}
		conn = next
	}
}

// answerConnOf returns the answerConn that conn is or wraps, or nil.
func answerConnOf(conn net.Conn) *answerConn {
	for ok := true; ok; conn, ok = below(conn) {
		if c, is := conn.(*answerConn); is {
			return c
		}
	}
	return nil
}
