package httplimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// holdPlaces has a request keep its places in flight until its handler has returned and the
// connection that the handler took over, if it did, is closed. The handler must write to
// held, and the caller must call returned after the handler. Where w goes on with the
// response after its handler, as fiberlimit's does, w says when that ends.
func holdPlaces(w http.ResponseWriter, release func()) (held http.ResponseWriter, returned func()) {
	if late, ok := w.(interface{ AfterResponse(call func()) bool }); ok {
		return w, func() {
			if !late.AfterResponse(release) {
				release()
			}
		}
	}
	if !hijacks(w) {
		return w, release
	}
	p := &placeWriter{ResponseWriter: w, release: release}
	p.users.Store(1)
	return p, p.leave
}

// hijacks reports whether a handler may take over the connection below a writer.
func hijacks(w http.ResponseWriter) bool {
	for {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.Unwrap()
	}
}

type placeWriter struct {
	http.ResponseWriter
	release func()
	users   atomic.Int32 // how many hold the places: the handler, and a connection it took over
}

func (p *placeWriter) leave() {
	if p.users.Add(-1) == 0 {
		p.release()
	}
}

// Hijack implements [http.Hijacker].
func (p *placeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(p.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	p.users.Add(1)
	return &placeConn{conn, sync.OnceFunc(p.leave)}, rw, nil
}

// Flush implements [http.Flusher].
func (p *placeWriter) Flush() { _ = p.FlushError() }

// FlushError is called by [http.ResponseController].
func (p *placeWriter) FlushError() error {
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// ReadFrom implements [io.ReaderFrom], so that the kernel can send files.
func (p *placeWriter) ReadFrom(from io.Reader) (int64, error) {
	return io.Copy(p.ResponseWriter, from)
}

// Unwrap is called by [http.ResponseController].
func (p *placeWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

type placeConn struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *placeConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn returns the connection below, like [tls.Conn.NetConn].
func (c *placeConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the writing side, if the connection below can.
func (c *placeConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
