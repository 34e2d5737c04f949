package resp

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/policy"
)

// flushAt is how many bytes of answers are buffered while more commands have arrived already.
const flushAt = 32 << 10

const (
	// toBegin is how long a client that has connected, but not asked anything, may take to do so
	// when the server stops.
	toBegin = time.Second
	// Before a connection is closed it is read lingers times, for lookFor each: a command may have
	// arrived that was not read yet.
	lingers = 3
	lookFor = time.Millisecond
)

// A conn is one connection. Only its goroutine uses it, except for finish.
type conn struct {
	server   *Server
	net      net.Conn
	reader   *Reader
	out      reply
	id       int64
	name     string
	admitted bool
	began    time.Time
	quit     bool
	part     bool        // some of a command has arrived, and the deadline for the rest is set
	begun    atomic.Bool // the client has sent a command beyond the handshake

	result policy.Result
	last   bucket // of the last CL.THROTTLE, since the next one often has the same arguments

	mu       sync.Mutex // orders deadlines
	until    time.Time  // when the connection must end; zero while it need not
	lingered int        // how many reads there were since it must end
}

func newConn(s *Server, with net.Conn) *conn {
	c := &conn{server: s, net: with, id: s.next.Add(1), began: time.Now(), admitted: s.o.Admit == nil}
	c.reader = NewReader(c)
	return c
}

// commandWithin is how long a client may take to send the rest of a command that it has begun.
const commandWithin = 10 * time.Second

// Read reads from the client. When the connection must end, it reads again after the deadline; see
// linger.
func (c *conn) Read(b []byte) (int, error) {
	c.expectRest()
	for {
		n, err := c.net.Read(b)
		var late net.Error
		if n > 0 || !errors.As(err, &late) || !late.Timeout() || !c.linger() {
			return n, err
		}
	}
}

// expectRest sets the deadline for the rest of a command that has begun to arrive.
func (c *conn) expectRest() {
	if c.part || !c.reader.Begun() || !c.admitted {
		return
	}
	c.part = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.IsZero() {
		_ = c.net.SetReadDeadline(time.Now().Add(min(commandWithin, c.server.o.Idle)))
	}
}

// linger allows a moment to read what may have arrived, if the connection must end and has not used
// up its reads.
func (c *conn) linger() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.until.IsZero() && c.lookLocked()
}

func (c *conn) lookLocked() bool {
	if c.lingered == lingers {
		return false
	}
	c.lingered++
	return c.net.SetReadDeadline(time.Now().Add(lookFor)) == nil
}

// run answers commands until the client closes the connection, the connection is cut off, or the
// server stops.
func (c *conn) run() {
	for !c.quit {
		if !c.reader.Buffered() && (!c.flush() || !c.setIdleDeadline()) {
			return
		}
		c.part = false
		args, err := c.reader.Next()
		if errors.Is(err, errTooLong) {
			c.begun.Store(true)
			c.out.fail("ERR", err.Error())
			continue
		}
		if err != nil {
			if e, ok := errors.AsType[*ProtocolError](err); ok {
				c.out.fail("ERR", e.Error())
				c.flush()
			}
			return
		}
		if !c.begun.Load() && !introduces(args[0]) {
			c.begun.Store(true)
		}
		c.do(args)
		if len(c.out.buf) >= flushAt && !c.flush() {
			return
		}
	}
	c.flush()
}

// setIdleDeadline sets how long the next command may take to come. It returns false when the
// connection must end.
func (c *conn) setIdleDeadline() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() {
		return !c.begun.Load() || c.lookLocked()
	}
	by := time.Now().Add(c.server.o.Idle)
	if !c.admitted { // even if it keeps sending
		by = c.began.Add(c.server.o.Unknown)
	}
	return c.net.SetReadDeadline(by) == nil
}

// flush sends the answers. It returns false if the client does not read them.
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

// finish ends the connection once it has answered the commands that have arrived, or at until. A
// read that waits for a command ends now; only the first command has toBegin.
func (c *conn) finish(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = until
	by := time.Now()
	if !c.begun.Load() {
		if by = by.Add(toBegin); until.Before(by) {
			by = until
		}
	}
	_ = c.net.SetReadDeadline(by)
	_ = c.net.SetWriteDeadline(until)
}

// introduces reports whether a command belongs to a client's handshake.
func introduces(command []byte) bool {
	switch strings.ToUpper(string(command)) {
	case "HELLO", "AUTH", "CLIENT", "SELECT", "COMMAND", "INFO", "PING":
		return true
	}
	return false
}

// expel withdraws the admission of a connection. Like a new connection, it then has some time to
// send a token.
func (c *conn) expel() {
	if c.admitted {
		c.admitted, c.began = false, time.Now()
	}
}
