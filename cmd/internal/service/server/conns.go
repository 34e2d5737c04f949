package server

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/stint-dev/stint/httplimit"
)

// ConnsOptions say how many connections there may be. The zero value is good
// for most.
type ConnsOptions struct {
	// Max is how many there may be at once. The default is what the limit of
	// descriptors leaves, see PerConn.
	Max int
	// PerAddress is how many one address may have, and one /64 of IPv6. The
	// default is a quarter of Max.
	PerAddress int
	// Trusted are proxies, which PerAddress does not hold: their clients are
	// many. The default is none.
	Trusted []netip.Prefix
	// PerConn is how many descriptors a connection takes: 2 for a proxy. The
	// default value is 1.
	PerConn int
	// Log receives refusals, without addresses. Required.
	Log *slog.Logger
}

// Conns bounds connections, those of several listeners together. What is beyond
// a bound is accepted and closed at once, so that descriptors are left for
// operators, for the store and for files. It may be used from many goroutines
// at once.
type Conns struct {
	o ConnsOptions

	requests *Requests

	mu  sync.Mutex
	all int
	by  map[netip.Prefix]int
}

// reserved is how many descriptors are left for what is no client: a listener
// for operators with its connections, the store, files.
const reserved = 64

// NewConns returns bounds.
func NewConns(o ConnsOptions) *Conns {
	if o.Max <= 0 {
		o.Max = max((descriptors()-reserved)/max(o.PerConn, 1), 16)
	}
	if o.PerAddress <= 0 {
		o.PerAddress = max(o.Max/4, 4)
	}
	o.Log = SampleLog(o.Log)
	return &Conns{o: o, by: make(map[netip.Prefix]int), requests: newRequests(o)}
}

// Requests returns the bounds of requests that hold a connection to the server behind.
func (c *Conns) Requests() *Requests { return c.requests }

// Bounds returns how many connections there may be in all, and of one address.
func (c *Conns) Bounds() (most, perAddress int) { return c.o.Max, c.o.PerAddress }

// Count returns how many connections there are.
func (c *Conns) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// Listen returns a listener whose connections count.
func (c *Conns) Listen(ln net.Listener) net.Listener { return &boundedListener{ln, c} }

type boundedListener struct {
	net.Listener
	conns *Conns
}

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		network, why := l.conns.enter(conn.RemoteAddr())
		if why == "" {
			return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { l.conns.leave(network) })}, nil
		}
		_ = conn.Close() // it has had no answer, and gets none
		l.conns.o.Log.Warn("a connection was closed at once", "why", why)
	}
}

// SetDeadline sets that of Accept, if the listener below has one.
func (l *boundedListener) SetDeadline(t time.Time) error {
	if under, ok := l.Listener.(interface{ SetDeadline(t time.Time) error }); ok {
		return under.SetDeadline(t)
	}
	return errors.ErrUnsupported
}

// enter counts a connection, or says why there may not be another.
func (c *Conns) enter(peer net.Addr) (network netip.Prefix, why string) {
	network = networkOf(peer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.o.Max {
		return network, "there are as many as there may be (--max-conns)"
	}
	if network.IsValid() {
		if c.by[network] >= c.o.PerAddress && !c.trusts(peer) {
			return network, "its address has as many as one may have (--max-conns-per-address)"
		}
		c.by[network]++
	}
	c.all++
	return network, ""
}

func (c *Conns) leave(network netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if !network.IsValid() {
		return
	}
	if c.by[network]--; c.by[network] == 0 {
		delete(c.by, network)
	}
}

// networkOf returns what a peer's connections are counted by: its address, of
// IPv6 the /64. A Unix socket has none.
func networkOf(peer net.Addr) netip.Prefix {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return networkOfAddr(tcp.AddrPort().Addr())
}

func networkOfAddr(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}

func (c *Conns) trusts(peer net.Addr) bool {
	addr := peer.(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
	return (&httplimit.ClientIP{Trusted: c.o.Trusted}).Trusts(addr)
}

// A countedConn counts until it is closed.
type countedConn struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	err := c.Conn.Close() // the descriptor is free before another is let in
	c.leave()
	return err
}

// NetConn returns the connection below, as that of a TLS connection does.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is sent, as net/http does before it closes.
func (c *countedConn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}
