package server

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
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
	// Balancers are peers that begin each connection with PROXY protocol, which
	// nobody else may. PerAddress holds the clients that they name, not them. The
	// default is none.
	Balancers []netip.Prefix
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
	log       *slog.Logger
	bounds    *bounds
	requests  *Requests
	balancers []netip.Prefix
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
	return &Conns{
		log:       SampleLog(o.Log),
		requests:  newRequests(o),
		balancers: o.Balancers,
		bounds: newBounds(o.Max, o.PerAddress, slices.Concat(o.Trusted, o.Balancers),
			"there are as many as there may be (--max-conns)", "its address has as many as one may have (--max-conns-per-address)"),
	}
}

// Requests returns the bounds of requests that hold a connection to the server behind.
func (c *Conns) Requests() *Requests { return c.requests }

// Bounds returns how many connections there may be in all, and of one address.
func (c *Conns) Bounds() (most, perAddress int) { return c.bounds.most, c.bounds.perAddress }

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
		var peer netip.Addr // of a Unix socket none
		if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			peer = tcp.AddrPort().Addr()
		}
		counted, why := l.conns.bounds.count(conn, AddressAt(peer))
		if why == "" {
			return l.conns.balanced(counted, peer), nil
		}
		_ = conn.Close() // it has had no answer, and gets none
		l.conns.log.Warn("a connection was closed at once", "why", why)
	}
}

// SetDeadline sets that of Accept, if the listener below has one.
func (l *boundedListener) SetDeadline(t time.Time) error {
	if under, ok := l.Listener.(interface{ SetDeadline(t time.Time) error }); ok {
		return under.SetDeadline(t)
	}
	return errors.ErrUnsupported
}

// A countedConn counts until it is closed.
type countedConn struct {
	net.Conn
	bounds *bounds
	at     Address // guarded by bounds.mu, as is left
	left   bool
}

// count counts a connection of an address, or says why there may not be another.
func (b *bounds) count(conn net.Conn, at Address) (*countedConn, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if why := b.over(at); why != "" {
		return nil, why
	}
	b.add(at, 1)
	return &countedConn{Conn: conn, bounds: b, at: at}, ""
}

// named counts the connection for another address from now on, or says why that may not
// have another.
func (c *countedConn) named(at Address) (why string) {
	c.bounds.mu.Lock()
	defer c.bounds.mu.Unlock()
	if c.left {
		return ""
	}
	c.bounds.add(c.at, -1)
	if why = c.bounds.over(at); why == "" {
		c.at = at
	}
	c.bounds.add(c.at, 1)
	return why
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	err := c.Conn.Close() // the descriptor is free before another is let in
	c.bounds.mu.Lock()
	defer c.bounds.mu.Unlock()
	if !c.left {
		c.left = true
		c.bounds.add(c.at, -1)
	}
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

// bounds count what there is at once, in all, of each address, and of IPv6 of each /64 and
// each /48, which may have twice as much: who has one network has 65,536 of the others. It
// may be used from many goroutines at once.
type bounds struct {
	most, perAddress  int
	part              int                // if not 0, one address may have this part of what is free, in place of perAddress
	trusted           httplimit.ClientIP // proxies, which the bound of one address does not hold
	full, fullAddress string             // why there may not be another

	mu  sync.Mutex
	all int
	by  map[netip.Prefix]int
}

func newBounds(most, perAddress int, trusted []netip.Prefix, full, fullAddress string) *bounds {
	return &bounds{
		most: most, perAddress: perAddress, trusted: httplimit.ClientIP{Trusted: trusted},
		full: full, fullAddress: fullAddress, by: make(map[netip.Prefix]int),
	}
}

// enter counts one of an address until leave is called, or says why there may not be
// another.
func (b *bounds) enter(a Address) (leave func(), why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if why := b.over(a); why != "" {
		return nil, why
	}
	b.add(a, 1)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.add(a, -1)
	}, ""
}

// over says why there may not be another, with mu held.
func (b *bounds) over(a Address) (why string) {
	each := b.perAddress
	if b.part > 0 {
		each = max((b.most-b.all)/b.part, 1)
	}
	switch {
	case b.all >= b.most:
		return b.full
	case (b.by[a.network] >= each || b.by[a.site] >= 2*each) && a.network.IsValid() && !b.trusted.Trusts(a.addr):
		return b.fullAddress
	}
	return ""
}

// add counts, with mu held.
func (b *bounds) add(a Address, n int) {
	b.all += n
	for _, of := range []netip.Prefix{a.network, a.site} {
		if !of.IsValid() {
			continue
		}
		if b.by[of] += n; b.by[of] == 0 {
			delete(b.by, of)
		}
	}
}

// An Address is whom something counts for. The zero value, for a Unix socket, is held
// by the bounds in all alone.
type Address struct {
	addr          netip.Addr
	network, site netip.Prefix // of IPv4, there is no site
}

// of returns the address as it counts, of IPv6 its /64.
func (a Address) of() Address { return Address{network: a.network} }

// AddressOf returns that of a peer, "address:port".
func AddressOf(peer string) Address {
	at, _ := netip.ParseAddrPort(peer) // a Unix socket has none
	return AddressAt(at.Addr())
}

// AddressAt returns that of an address.
func AddressAt(addr netip.Addr) (a Address) {
	a.addr = addr.Unmap().WithZone("")
	if a.addr.Is4() {
		a.network = netip.PrefixFrom(a.addr, 32)
		return a
	}
	a.network, _ = a.addr.Prefix(64) // an address has as many
	a.site, _ = a.addr.Prefix(48)
	return a
}

// Requests bounds requests, such as those that hold a connection to the server behind.
// One connection of HTTP/2 has many of them, so that bounds on the connections of
// clients do not hold what requests take. It may be used from many goroutines at once.
type Requests struct{ *bounds }

// newRequests lets requests have the descriptors that the connections of clients leave,
// and one address a quarter of them. Neither is less than there may be connections, each
// of which may have a request.
func newRequests(o ConnsOptions) *Requests {
	most := max(descriptors()-reserved-o.Max, o.Max)
	return NewRequests(most, max(most/4, o.PerAddress), o.Trusted)
}

// NewRequests returns a bound of requests in all and of one address, which does not
// hold trusted proxies.
func NewRequests(most, perAddress int, trusted []netip.Prefix) *Requests {
	return &Requests{newBounds(most, perAddress, trusted,
		"there are as many requests as there may be", "its address has as many requests as one may have")}
}

// Most returns how many requests there may be in all.
func (r *Requests) Most() int { return r.most }

// Enter counts a request of an address until leave is called, or says why there may not be
// another.
func (r *Requests) Enter(a Address) (leave func(), why string) { return r.enter(a) }

// A Load counts what there is in all and of each address. It may be used from many
// goroutines at once.
type Load struct{ *bounds }

// NewLoad returns bounds of requests that wait for the server behind, as NewRequests does.
func NewLoad(most, perAddress int, trusted []netip.Prefix) Load {
	return Load{newBounds(most, perAddress, trusted,
		"too many requests wait for the server behind", "too many requests of its address wait for the server behind")}
}

// NewShares returns bounds of which one address has at most a part of what is free, such as
// a sixteenth: however many addresses take all that they may, some is left for others.
// Trusted proxies may have all. full and fullAddress say what is refused.
func NewShares(most, part int, trusted []netip.Prefix, full, fullAddress string) Load {
	b := newBounds(most, 0, trusted, full, fullAddress)
	b.part = part
	return Load{b}
}

// Full says why an address may not have another.
func (l Load) Full(a Address) (why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over(a)
}

// Take counts n more of an address, or says why it may not have more.
func (l Load) Take(a Address, n int) (why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why = l.over(a); why == "" {
		l.add(a, n)
	}
	return why
}

// Add counts n more of an address, whatever the bounds: those are for what has not begun.
func (l Load) Add(a Address, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(a, n)
}

// Count returns how much there is in all.
func (l Load) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}
