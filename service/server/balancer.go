package server

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// balancerTimeout is how long a balancer may take to send the header of PROXY protocol.
const balancerTimeout = 5 * time.Second

// balanced returns a connection whose peer is the client that a balancer names in PROXY
// protocol. A balancer must begin with the protocol, and no other peer may: the first
// read of a connection that breaks this fails. Without balancers it returns conn.
func (c *Conns) balanced(conn *countedConn, peer netip.Addr) net.Conn {
	if len(c.balancers) == 0 {
		return conn
	}
	peer = peer.Unmap().WithZone("")
	if !slices.ContainsFunc(c.balancers, func(p netip.Prefix) bool { return p.Contains(peer) }) {
		return &strangerConn{countedConn: conn, conns: c}
	}
	return &balancedConn{
		Conn:  proxyproto.NewConn(conn, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(balancerTimeout)),
		below: conn, conns: c,
	}
}

// A balancedConn counts for the client that its balancer names. It logs why it is closed
// before its first byte.
type balancedConn struct {
	*proxyproto.Conn
	below *countedConn
	conns *Conns
	begun sync.Once
	over  error // set if the client has as many connections as it may have
}

var errOver = errors.New("as many connections as there may be")

// begin reads the header, within balancerTimeout.
func (c *balancedConn) begin() {
	c.begun.Do(func() {
		header := c.Conn.ProxyHeader()
		if header == nil || header.Command.IsLocal() {
			return
		}
		client, ok := header.SourceAddr.(*net.TCPAddr)
		if !ok {
			return
		}
		if why := c.below.named(AddressAt(client.AddrPort().Addr())); why != "" {
			c.over = errOver
			c.conns.log.Warn("a connection was closed at once", "why", why)
			_ = c.below.Close() // nothing was sent on it
		}
	})
}

// RemoteAddr returns the address of the client. A client that reached the balancer by a
// Unix socket has none: the path of the socket could look like an address.
func (c *balancedConn) RemoteAddr() net.Addr {
	c.begin()
	addr := c.Conn.RemoteAddr()
	if unix, ok := addr.(*net.UnixAddr); ok {
		return &net.UnixAddr{Net: unix.Net, Name: "@"}
	}
	return addr
}

// Read implements [net.Conn].
func (c *balancedConn) Read(p []byte) (int, error) {
	if c.begin(); c.over != nil {
		return 0, c.over
	}
	n, err := c.Conn.Read(p)
	if errors.Is(err, proxyproto.ErrNoProxyProtocol) {
		c.conns.log.Warn("a connection was closed: a balancer must begin it with PROXY protocol", "hint", "turn it on there, or take its address out of --proxy-protocol")
	}
	return n, err
}

// NetConn returns the connection below, as [tls.Conn.NetConn] does.
func (c *balancedConn) NetConn() net.Conn { return c.below }

// CloseWrite ends the sending side: net/http calls it before it closes a connection.
func (c *balancedConn) CloseWrite() error { return c.below.CloseWrite() }

// A strangerConn is a connection of a peer that is no balancer.
type strangerConn struct {
	*countedConn
	conns *Conns
	begun bool
}

// Read implements [net.Conn].
func (c *strangerConn) Read(p []byte) (int, error) {
	n, err := c.countedConn.Read(p)
	if c.begun || n == 0 {
		return n, err
	}
	c.begun = true
	for _, header := range []string{"PROXY ", "\r\n\r\n\x00\r\nQUIT\n"} {
		if bytes.HasPrefix(p[:n], []byte(header)) {
			c.conns.log.Warn("a connection was closed: it begins with PROXY protocol, and its address is not in --proxy-protocol")
			_ = c.countedConn.Close() // or net/http answers it
			return 0, proxyproto.ErrSuperfluousProxyHeader
		}
	}
	return n, err
}
