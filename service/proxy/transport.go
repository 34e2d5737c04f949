package proxy

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/service/server"
)

// A transport is the side towards the upstream. Calls of gRPC need HTTP/2:
// where the upstream is http, they go over HTTP/2 in the clear, and all else
// over HTTP/1.1, which has upgrades; where it is https, TLS settles it.
type transport struct {
	plain, grpc *http.Transport
}

// newTransport returns a transport that passes answers on as they are encoded,
// and sets no limit on how long one takes, since it may be a long poll. It has at
// most as many connections as there may be requests that hold one, all to the socket
// if one is given.
func newTransport(requests *server.Requests, socket string) *transport {
	plain := http.DefaultTransport.(*http.Transport).Clone()
	plain.Proxy = nil
	dials := &dialer{Dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}, socket: socket, most: math.MaxInt64}
	if requests != nil {
		dials.most = int64(requests.Most())
	}
	plain.DialContext = dials.dial
	plain.DisableCompression = true
	plain.MaxIdleConns = 512
	plain.MaxIdleConnsPerHost = 256 // there is one host
	grpc := plain.Clone()
	grpc.Protocols = new(http.Protocols)
	grpc.Protocols.SetUnencryptedHTTP2(true)
	grpc.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return &transport{plain, grpc}
}

// A dialer bounds the connections that there are, or that are being made.
// net/http goes on making a connection when its request has been given up, so a bound
// on requests is none on these: clients that left at once, while the upstream accepted
// no connection, took all descriptors.
type dialer struct {
	net.Dialer
	socket string // to dial in place of an address
	most   int64
	open   atomic.Int64
}

// errConnections is for a request that cannot have another connection.
var errConnections = errors.New("there are as many connections to the server behind as there may be")

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if d.open.Add(1) > d.most {
		d.open.Add(-1)
		return nil, errConnections
	}
	if d.socket != "" {
		network, address = "unix", d.socket
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		d.open.Add(-1)
		return nil, err
	}
	closed := sync.OnceFunc(func() { d.open.Add(-1) })
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &upstreamConn{tcp, closed}, nil
	}
	return &upstreamSocket{conn.(*net.UnixConn), closed}, nil
}

// An upstreamConn is counted until it is closed. It copies as a TCP connection does.
type upstreamConn struct {
	*net.TCPConn
	closed func()
}

// Close implements [net.Conn].
func (c *upstreamConn) Close() error {
	defer c.closed()
	return c.TCPConn.Close()
}

// An upstreamSocket is so for a Unix socket.
type upstreamSocket struct {
	*net.UnixConn
	closed func()
}

// Close implements [net.Conn].
func (c *upstreamSocket) Close() error {
	defer c.closed()
	return c.UnixConn.Close()
}

const (
	// dialTimeout is how long a connection may take to be made.
	dialTimeout = 30 * time.Second
	// pingAfter is how long nothing may come on an HTTP/2 connection with calls
	// under way before it is asked for a sign of life.
	pingAfter = 30 * time.Second
	// pingTimeout is how long the sign may take.
	pingTimeout = 15 * time.Second
)

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" && isGRPC(r.Header) {
		return t.grpc.RoundTrip(r)
	}
	return t.plain.RoundTrip(r)
}

// CloseIdleConnections closes those of both kinds.
func (t *transport) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	t.grpc.CloseIdleConnections()
}

// buffers are for bodies on their way, used again.
type buffers struct{ pool sync.Pool }

// bufferSize is what httputil.ReverseProxy would take for each answer.
const bufferSize = 32 << 10

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
