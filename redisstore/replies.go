package redisstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// Bounds of a reply, without which go-redis would allocate any length that a reply declares,
// and recurse to any depth.
const (
	mostReply    = 64 << 20 // bytes of one reply; each element counts elementSize more
	mostDecision = 16 << 20 // the same for the connections of a store
	mostLine     = 16 << 10 // bytes of a line
	mostNested   = 32       // depth of nested arrays
	elementSize  = 16
)

// A checkedConn is a connection that passes a line of a reply on only if the reply is still
// within bounds. Of a line that it refuses, and of all that follows, nothing can be read.
type checkedConn struct {
	net.Conn
	in     *bufio.Reader
	most   int   // the most bytes of one reply
	size   int   // the size of the reply so far, with what it declares
	nested []int // elements that arrays still lack, the outermost first
	passes int   // how many bytes may be read
}

// A checkedSocket is a checkedConn with a [syscall.Conn], by which go-redis sees that the
// server has closed it.
type checkedSocket struct {
	*checkedConn
	syscall.Conn
}

// checked returns a connection whose replies have at most the given number of bytes.
func checked(conn net.Conn, most int) net.Conn {
	c := &checkedConn{Conn: conn, in: bufio.NewReaderSize(conn, mostLine), most: most}
	if socket, ok := conn.(syscall.Conn); ok {
		return checkedSocket{c, socket}
	}
	return c
}

// NetConn returns the connection below, as [tls.Conn.NetConn] does.
func (c *checkedConn) NetConn() net.Conn { return c.Conn }

// Read implements [net.Conn].
func (c *checkedConn) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if c.passes == 0 {
			if err = c.next(n == 0); err != nil || c.passes == 0 {
				return n, err
			}
		}
		if n > 0 && c.in.Buffered() == 0 {
			return n, nil
		}
		read, err := c.in.Read(p[n:min(len(p), n+c.passes)])
		n += read
		c.passes -= read
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// next lets a line pass, with the bytes that it declares. If wait is false and no whole line
// has come, it lets nothing pass.
func (c *checkedConn) next(wait bool) error {
	for {
		came, _ := c.in.Peek(c.in.Buffered())
		if end := bytes.IndexByte(came, '\n'); end >= 0 {
			return c.check(came[:end+1])
		}
		if len(came) == mostLine {
			return fmt.Errorf("redisstore: a reply has a line of more than %d bytes", mostLine)
		}
		if !wait {
			return nil
		}
		if _, err := c.in.Peek(len(came) + 1); err != nil {
			return err
		}
	}
}

// check lets a line pass, unless the reply exceeds its bounds with it.
func (c *checkedConn) check(line []byte) error {
	if len(c.nested) == 0 {
		c.size = 0
	}
	if len(c.nested) > 0 && (line[0] == '-' || line[0] == '!') { // go-redis may end the reply here, and take its rest for the next
		return errors.New("redisstore: a reply has an error inside an array")
	}
	length, elements, err := c.declared(line)
	if err != nil {
		return err
	}
	size := c.size + len(line) + length + elements*elementSize
	switch {
	case size > c.most:
		return fmt.Errorf("redisstore: a reply has more than %d bytes, of which each element counts %d", c.most, elementSize)
	case elements > 0 && len(c.nested) == mostNested:
		return fmt.Errorf("redisstore: a reply has arrays that are nested more than %d deep", mostNested)
	}
	c.size, c.passes = size, len(line)+length
	if end := len(c.nested) - 1; end >= 0 {
		c.nested[end]--
	}
	if elements > 0 {
		c.nested = append(c.nested, elements)
	}
	for end := len(c.nested) - 1; end >= 0 && c.nested[end] == 0; end-- {
		c.nested = c.nested[:end]
	}
	return nil
}

var errAttribute = errors.New("redisstore: a reply has an attribute, which no command of stint asks for")

// declared returns how many bytes follow a line, or how many elements.
func (c *checkedConn) declared(line []byte) (length, elements int, err error) {
	kind := line[0]
	switch kind {
	case '|':
		return 0, 0, errAttribute
	case '$', '!', '=', '*', '~', '>', '%':
	default:
		return 0, 0, nil
	}
	text := bytes.TrimRight(line[1:], "\r\n")
	n, err := strconv.Atoi(string(text))
	switch {
	case err != nil || n < -1 || n > c.most:
		return 0, 0, fmt.Errorf("redisstore: a reply declares %.32q bytes or elements: 0 to %d", text, c.most)
	case n == -1:
		return 0, 0, nil
	case kind == '%':
		return 0, 2 * n, nil
	case kind == '$', kind == '!', kind == '=':
		return n + len("\r\n"), 0, nil
	}
	return 0, n, nil
}
