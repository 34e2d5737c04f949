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

// ConnsOptions say how many connections there may be. The zero value, with a Log, suits
// most programs.
type ConnsOptions struct {
	// Max is how many connections there may be at once. The default follows from
	// the process's limit of descriptors and from PerConn.
	Max int
	// PerAddress is how many connections one IPv4 address or one /64 of IPv6 may
	// have. The default is a quarter of Max.
	PerAddress int
	// Trusted are proxies. PerAddress does not apply to them, since they have many
	// clients. The default is none.
	Trusted []netip.Prefix
	// Balancers are peers that begin each connection with PROXY protocol, which no
	// other peer may do. PerAddress applies to the clients that they name, not to
	// them. The default is none.
	Balancers []netip.Prefix
	// PerConn is how many descriptors a connection takes: 2 in a proxy. The default
	// value is 1.
	PerConn int
	// Log receives refusals, without addresses. Required.
	Log *slog.Logger
}

// Conns bounds the connections of several listeners together. A connection beyond a
// bound is accepted and closed at once, so that descriptors are left for operators, the
// store and files. It may be used from many goroutines at once.
type Conns struct {
	log       *slog.Logger
	bounds    *bounds
	requests  *Requests
	balancers []netip.Prefix
}

// reserved is how many descriptors are kept from clients: for the listener of operators
// and its connections, the store, and files.
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

// Requests returns the bounds of requests that hold a connection to the upstream server.
func (c *Conns) Requests() *Requests { return c.requests }

// Bounds returns how many connections there may be in all, and of one address.
func (c *Conns) Bounds() (most, perAddress int) { return c.bounds.most, c.bounds.perAddress }

// Listen returns a listener whose connections are counted.
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
		var peer netip.Addr // zero for a Unix socket
		if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			peer = tcp.AddrPort().Addr()
		}
		counted, why := l.conns.bounds.count(conn, AddressAt(peer))
		if why == "" {
			return l.conns.balanced(counted, peer), nil
		}
		_ = conn.Close() // nothing was sent on it
		l.conns.log.Warn("a connection was closed at once", "why", why)
	}
}

// SetDeadline sets the deadline of Accept, if the listener below has one.
func (l *boundedListener) SetDeadline(t time.Time) error {
	if under, ok := l.Listener.(interface{ SetDeadline(t time.Time) error }); ok {
		return under.SetDeadline(t)
	}
	return errors.ErrUnsupported
}

// A countedConn is counted until it is closed.
type countedConn struct {
	net.Conn
	bounds *bounds
	at     Address // guarded by bounds.mu, as is left
	left   bool
}

// count counts a connection of an address, or returns the bound that it would exceed.
func (b *bounds) count(conn net.Conn, at Address) (*countedConn, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if why := b.over(at); why != "" {
		return nil, why
	}
	b.add(at, 1)
	return &countedConn{Conn: conn, bounds: b, at: at}, ""
}

// named counts the connection for another address from now on: a balancer has named its
// client. If that exceeds a bound, it returns which, and the connection counts as before.
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
	err := c.Conn.Close() // frees the descriptor before a connection is let in for it
	c.bounds.mu.Lock()
	defer c.bounds.mu.Unlock()
	if !c.left {
		c.left = true
		c.bounds.add(c.at, -1)
	}
	return err
}

// NetConn returns the connection below, as [tls.Conn.NetConn] does.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the sending side: net/http calls it before it closes a connection.
func (c *countedConn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// bounds count connections or requests: in all, of each IPv4 address or /64 of IPv6, and of
// each /48, which may have twice as many as a /64. A /48 has 65,536 of them, so a client with
// one would otherwise have no bound. They may be used from many goroutines at once.
type bounds struct {
	most, perAddress  int
	part              int                // if not 0, one address may have one part-th of what is free, and perAddress does not apply
	trusted           httplimit.ClientIP // proxies, to which no bound of one address applies
	full, fullAddress string             // the reasons of a refusal

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

// enter counts one more for an address until leave is called, or returns the bound that it
// would exceed.
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

// over returns the bound that one more for an address would exceed, or "". mu is held.
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

// add counts n more for an address. mu is held.
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

// An Address is the address that a connection or a request counts for. Only the bounds in
// all apply to the zero value, the address of a Unix socket.
type Address struct {
	addr          netip.Addr
	network, site netip.Prefix // the /64 and the /48; for IPv4 the address, and no site
}

// of returns the Address of the whole network: the IPv4 address, or the /64 of IPv6.
func (a Address) of() Address { return Address{network: a.network} }

// AddressOf returns the Address of a peer, "address:port".
func AddressOf(peer string) Address {
	at, _ := netip.ParseAddrPort(peer) // zero for a Unix socket
	return AddressAt(at.Addr())
}

// AddressAt returns the Address of an IP address.
func AddressAt(addr netip.Addr) (a Address) {
	a.addr = addr.Unmap().WithZone("")
	if a.addr.Is4() {
		a.network = netip.PrefixFrom(a.addr, 32)
		return a
	}
	a.network, _ = a.addr.Prefix(64) // IPv6 addresses have enough bits
	a.site, _ = a.addr.Prefix(48)
	return a
}

// Requests bounds requests, such as those that hold a connection to the upstream server.
// One HTTP/2 connection carries many requests, so that bounds of connections do not bound
// what requests take. It may be used from many goroutines at once.
type Requests struct{ *bounds }

// newRequests lets requests have the descriptors that the connections of clients leave,
// and one address a quarter of that. Neither is less than the bound of connections, so
// that each connection may have a request.
func newRequests(o ConnsOptions) *Requests {
	most := max(descriptors()-reserved-o.Max, o.Max)
	return NewRequests(most, max(most/4, o.PerAddress), o.Trusted)
}

// NewRequests returns bounds of requests: most in all, and perAddress of one address that
// is no trusted proxy.
func NewRequests(most, perAddress int, trusted []netip.Prefix) *Requests {
	return &Requests{newBounds(most, perAddress, trusted,
		"there are as many requests as there may be", "its address has as many requests as one may have")}
}

// Most returns how many requests there may be in all.
func (r *Requests) Most() int { return r.most }

// Enter counts a request of an address until leave is called, or returns the bound that it
// would exceed.
func (r *Requests) Enter(a Address) (leave func(), why string) { return r.enter(a) }

// A Load counts units, such as waiting requests, in all and of each address. It may be used
// from many goroutines at once.
type Load struct{ *bounds }

// NewLoad returns bounds of requests that wait for the upstream server; see [NewRequests]. If perAddress
// is 0, one address may have a quarter of what is free; see [NewShares].
func NewLoad(most, perAddress int, trusted []netip.Prefix) Load {
	b := newBounds(most, perAddress, trusted,
		"too many requests wait for the server behind", "too many requests of its address wait for the server behind")
	if perAddress == 0 {
		b.part = 4
	}
	return Load{b}
}

// NewShares returns bounds under which one address may have a share of what is free: a
// sixteenth if part is 16. So however many addresses take their share, something is left
// for the next. Trusted proxies may take all. full and fullAddress are the reasons of
// refusals.
func NewShares(most, part int, trusted []netip.Prefix, full, fullAddress string) Load {
	b := newBounds(most, 0, trusted, full, fullAddress)
	b.part = part
	return Load{b}
}

// Full returns the bound that one more unit of an address would exceed, or "".
func (l Load) Full(a Address) (why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over(a)
}

// Take counts n more units of an address, or returns the bound that it has reached.
func (l Load) Take(a Address, n int) (why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why = l.over(a); why == "" {
		l.add(a, n)
	}
	return why
}

// Add counts n more units of an address whatever the bounds: these apply only to work that
// has not begun.
func (l Load) Add(a Address, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(a, n)
}

// Idle takes n units out of the count in all, or puts -n back whatever the bounds. They count of their
// address all the while.
func (l Load) Idle(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all -= n
}

// Count returns how many units there are in all.
func (l Load) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}
