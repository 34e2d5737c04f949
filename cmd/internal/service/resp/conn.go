package resp

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/stint-dev/stint/policy"
)

// flushAt is how many bytes of answers are kept back while more commands are
// here already.
const flushAt = 32 << 10

// A conn is one connection. It belongs to its goroutine, but for finish.
type conn struct {
	server   *Server
	net      net.Conn
	reader   *Reader
	out      reply
	id       int64
	name     string
	admitted bool
	operator bool // may refund and reset
	multi    transaction
	began    time.Time
	quit     bool

	result policy.Result
	last   bucket // of the last CL.THROTTLE: the next is often alike

	mu    sync.Mutex // orders deadlines
	until time.Time  // when the connection ends, if it is to
}

func newConn(s *Server, with net.Conn) *conn {
	return &conn{
		server: s, net: with, reader: NewReader(with), id: s.next.Add(1), began: time.Now(),
		admitted: s.o.Admit == nil,
	}
}

// run answers commands until the client closes the connection, is cut off, or the
// server stops.
func (c *conn) run() {
	for !c.quit {
		if !c.reader.Buffered() && (!c.flush() || !c.await()) {
			return
		}
		args, err := c.reader.Next()
		if err != nil {
			if e, ok := errors.AsType[*ProtocolError](err); ok {
				c.out.fail("ERR", e.Error())
				c.flush()
			}
			return
		}
		c.do(args)
		if len(c.out.buf) >= flushAt && !c.flush() {
			return
		}
	}
	c.flush()
}

// await sets how long the next command may take to come; it reports false when
// the connection is to end.
func (c *conn) await() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() {
		return false
	}
	by := time.Now().Add(c.server.o.Idle)
	if !c.admitted { // however much it says
		by = c.began.Add(c.server.o.Unknown)
	}
	return c.net.SetReadDeadline(by) == nil
}

// flush sends the answers; it reports false if the client does not take them.
func (c *conn) flush() bool {
	if len(c.out.buf) == 0 {
		return true
	}
	if c.net.SetWriteDeadline(time.Now().Add(c.server.o.Write)) != nil {
		return false
	}
	_, err := c.net.Write(c.out.buf)
	c.out.buf = c.out.buf[:0]
	if cap(c.out.buf) > 2*flushAt {
		c.out.buf = nil
	}
	return err == nil
}

// finish ends the connection once it has answered what has arrived, or when
// the time is over.
func (c *conn) finish(within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Now().Add(within)
	// A read that waits for a command ends now; what is buffered is answered.
	_ = c.net.SetReadDeadline(time.Now())
	_ = c.net.SetWriteDeadline(c.until)
}

// expel takes a connection's right to ask away; it has the time of a new one to
// show a token again.
func (c *conn) expel() {
	if c.admitted {
		c.admitted, c.operator, c.began = false, false, time.Now()
	}
}
