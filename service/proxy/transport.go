package proxy

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/service/server"
)

// A transport sends requests to the upstream. gRPC calls need HTTP/2: to an upstream of http they
// go over HTTP/2 in the clear, and all other requests over HTTP/1.1, which has upgrades. To an
// upstream of https, TLS negotiates the protocol.
type transport struct {
	plain, grpc *http.Transport
	fresh       *http.Transport // plain, with a new connection for each request
}

// newTransport returns a transport that passes answers on as they are encoded. An answer may take
// any time, since it may be a long poll. There are at most as many connections as requests may hold,
// all of them to the Unix socket if one is given.
func newTransport(requests *server.Requests, socket string) *transport {
	plain := http.DefaultTransport.(*http.Transport).Clone()
	plain.Proxy = onlyOnce
	dials := &dialer{Dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}, socket: socket, most: math.MaxInt64}
	if requests != nil {
		dials.most = int64(requests.Most())
	}
	plain.DialContext = dials.dial
	plain.DisableCompression = true
	plain.MaxIdleConns = 512
	plain.MaxIdleConnsPerHost = 256 // there is one host
	fresh, grpc := plain.Clone(), plain.Clone()
	fresh.Proxy, fresh.DisableKeepAlives = nil, true
	grpc.Proxy = nil
	grpc.Protocols = new(http.Protocols)
	grpc.Protocols.SetUnencryptedHTTP2(true)
	grpc.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return &transport{plain, grpc, fresh}
}

// A dialer bounds the connections that there are or that are being made. A bound on requests does
// not bound them: net/http goes on dialing after a request was given up, so clients that leave at
// once could take all descriptors while the upstream accepts no connection.
type dialer struct {
	net.Dialer
	socket string // the Unix socket to dial; "" to dial addresses
	most   int64
	open   atomic.Int64
}

// errConnections is for a request that needs one connection too many.
const errConnections = busy("there are as many connections to the server behind as there may be")

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

// An upstreamConn counts until it is closed. It keeps the fast copies of a TCP connection.
type upstreamConn struct {
	*net.TCPConn
	closed func()
}

// Close implements [net.Conn].
func (c *upstreamConn) Close() error {
	defer c.closed()
	return c.TCPConn.Close()
}

// An upstreamSocket is an upstreamConn to a Unix socket.
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
	// pingAfter is how long an HTTP/2 connection with requests under way may be silent before it is
	// pinged.
	pingAfter = 30 * time.Second
	// pingTimeout is how long the answer to a ping may take.
	pingTimeout = 15 * time.Second
)

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" && isGRPC(r.Header) {
		return t.grpc.RoundTrip(r)
	}
	answer, err := t.plain.RoundTrip(r)
	if errors.Is(err, errAgain) {
		return t.fresh.RoundTrip(r)
	}
	return answer, err
}

// errAgain is for a request without a body that net/http would send a second time.
var errAgain = errors.New("the request has been given to a connection before")

// onlyOnce fails the second attempt of a request without a body. net/http asks for the proxy of each
// attempt, and would go on through all idle connections while the upstream closes each: one charge
// would reach the upstream many times. A request with a body has only attempts that send nothing.
func onlyOnce(r *http.Request) (*url.URL, error) {
	v := visitOf(r)
	if v == nil || r.Body != nil && r.Body != http.NoBody {
		return nil, nil
	}
	if v.tried {
		return nil, errAgain
	}
	v.tried = true
	return nil, nil
}

// CloseIdleConnections closes the idle connections of both protocols.
func (t *transport) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	t.grpc.CloseIdleConnections()
}

// buffers are the buffers through which bodies are copied, for reuse.
type buffers struct{ pool sync.Pool }

// bufferSize is what httputil.ReverseProxy would allocate for each answer.
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
