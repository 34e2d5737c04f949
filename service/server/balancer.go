package server

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// balancerTimeout is how long a balancer may take to send its header.
const balancerTimeout = 5 * time.Second

// balanced returns a connection whose peer is the client that a balancer names in
// PROXY protocol. A balancer must begin with it, and nobody else may: the first read
// of such a connection fails. Without balancers it returns the connection.
func (c *Conns) balanced(conn net.Conn, peer netip.Addr) net.Conn {
	if len(c.balancers) == 0 {
		return conn
	}
	policy := proxyproto.REJECT
	for _, p := range c.balancers {
		if p.Contains(peer.Unmap().WithZone("")) {
			policy = proxyproto.REQUIRE
		}
	}
	return &balancedConn{
		Conn:  proxyproto.NewConn(conn, proxyproto.WithPolicy(policy), proxyproto.SetReadHeaderTimeout(balancerTimeout)),
		below: conn, conns: c,
	}
}

// A balancedConn tells the log why it ends before its first byte.
type balancedConn struct {
	*proxyproto.Conn
	below net.Conn
	conns *Conns
	said  sync.Once
}

// Read implements [net.Conn].
func (c *balancedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, proxyproto.ErrNoProxyProtocol):
		c.said.Do(func() {
			c.conns.log.Warn("a connection was closed: a balancer must begin it with PROXY protocol", "hint", "turn it on there, or take its address out of --proxy-protocol")
		})
	case errors.Is(err, proxyproto.ErrSuperfluousProxyHeader):
		c.said.Do(func() {
			c.conns.log.Warn("a connection was closed: it begins with PROXY protocol, and its address is not in --proxy-protocol")
		})
	}
	return n, err
}

// NetConn returns the connection below, as that of a TLS connection does.
func (c *balancedConn) NetConn() net.Conn { return c.below }

// CloseWrite ends what is sent, as net/http does before it closes.
func (c *balancedConn) CloseWrite() error {
	return c.below.(interface{ CloseWrite() error }).CloseWrite()
}
