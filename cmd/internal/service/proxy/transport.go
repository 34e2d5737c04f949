package proxy

import (
	"net/http"
	"sync"
	"time"
)

// A transport is the side towards the upstream. Calls of gRPC need HTTP/2:
// where the upstream is http, they go over HTTP/2 in the clear, and all else
// over HTTP/1.1, which has upgrades; where it is https, TLS settles it.
type transport struct {
	plain, grpc *http.Transport
}

// newTransport returns a transport that passes answers on as they are encoded,
// and sets no limit on how long one takes, since it may be a long poll.
func newTransport() *transport {
	plain := http.DefaultTransport.(*http.Transport).Clone()
	plain.Proxy = nil
	plain.DisableCompression = true
	plain.MaxIdleConns = 512
	plain.MaxIdleConnsPerHost = 256 // there is one host
	grpc := plain.Clone()
	grpc.Protocols = new(http.Protocols)
	grpc.Protocols.SetUnencryptedHTTP2(true)
	grpc.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return &transport{plain, grpc}
}

const (
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
