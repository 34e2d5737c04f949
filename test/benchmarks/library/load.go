package library

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A client asks one server over connections that it keeps. It does as little
// as a client can, so that the machine is left to the server.
type client struct {
	conns    []net.Conn
	readers  []*bufio.Reader
	requests [][]byte // sent in turns
}

// connections is how many a client has: more than cores, so that the server
// has something to do while the client looks at an answer.
const connections = 8

// dial connects to a server.
func dial(address string, requests [][]byte) (*client, error) {
	c := &client{requests: requests}
	for range connections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns, c.readers = append(c.conns, conn), append(c.readers, bufio.NewReader(conn))
	}
	return c, nil
}

func (c *client) close() {
	for _, conn := range c.conns {
		_ = conn.Close() // all answers were read
	}
}

// ask sends request i over one connection and reads the answer.
func (c *client) ask(conn, i int) error {
	if _, err := c.conns[conn].Write(c.requests[i%len(c.requests)]); err != nil {
		return err
	}
	return readAnswer(c.readers[conn])
}

var (
	okLine = []byte(" 200 ")
	length = []byte("content-length:")
)

// readAnswer reads an answer with status 200 and a Content-Length.
func readAnswer(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.Contains(line, okLine) {
		return fmt.Errorf("the answer begins %q", line)
	}
	size := -1
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if len(line) > len(length) && bytes.EqualFold(line[:len(length)], length) {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(line[len(length):]))); err != nil {
				return err
			}
		}
	}
	if size < 0 {
		return errors.New("the answer has no Content-Length")
	}
	_, err = r.Discard(size)
	return err
}

// flatOut asks as fast as answers come, for a while, and returns how many came.
func (c *client) flatOut(length time.Duration) (answers int, err error) {
	var (
		all    sync.WaitGroup
		total  atomic.Int64
		failed atomic.Pointer[error]
	)
	until := time.Now().Add(length)
	for conn := range c.conns {
		all.Go(func() {
			n := 0
			for ; time.Now().Before(until); n++ {
				if err := c.ask(conn, conn*len(c.requests)/connections+n); err != nil {
					failed.Store(&err)
					break
				}
			}
			total.Add(int64(n))
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return int(total.Load()), nil
}

// paced asks at a rate, whether answers come or not, and returns how long each
// request took, sorted. A request whose connection was busy when it was due
// counts from then, since it waited for the server; one that was sent late
// because this process slept too long counts from when it was sent.
func (c *client) paced(rate float64, length time.Duration) ([]time.Duration, error) {
	each := make([][]time.Duration, len(c.conns))
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	gap := time.Duration(float64(time.Second) * connections / rate)
	begun := time.Now()
	for conn := range c.conns {
		all.Go(func() {
			due := begun.Add(gap * time.Duration(conn) / connections)
			for n := 0; due.Sub(begun) < length; n++ {
				start := due
				if wait := time.Until(due); wait > 0 {
					time.Sleep(wait)
					start = time.Now()
				}
				if err := c.ask(conn, conn*len(c.requests)/connections+n); err != nil {
					failed.Store(&err)
					return
				}
				each[conn] = append(each[conn], time.Since(start))
				due = due.Add(gap)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	took := slices.Concat(each...)
	slices.Sort(took)
	return took, nil
}
