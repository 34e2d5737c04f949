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

// balancerTimeout is how long a balancer may take to send its header.
const balancerTimeout = 5 * time.Second

// balanced returns a connection whose peer is the client that a balancer names in
// PROXY protocol. A balancer must begin with it, and nobody else may: the first read
// of such a connection fails. Without balancers it returns the connection.
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

// A balancedConn counts for the client that its balancer names, and tells the log why it
// ends before its first byte.
type balancedConn struct {
	*proxyproto.Conn
	below *countedConn
	conns *Conns
	begun sync.Once
	over  error // the client may not have another
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
			_ = c.below.Close() // it has had no answer, and gets none
		}
	})
}

// RemoteAddr returns the address of the client. One that came to the balancer by a Unix
// socket has none, whatever its path looks like.
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

// NetConn returns the connection below, as that of a TLS connection does.
func (c *balancedConn) NetConn() net.Conn { return c.below }

// CloseWrite ends what is sent, as net/http does before it closes.
func (c *balancedConn) CloseWrite() error { return c.below.CloseWrite() }

// A strangerConn is of a peer that is no balancer.
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
