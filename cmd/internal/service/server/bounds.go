package server

import (
	"net/netip"
	"sync"

	"github.com/stint-dev/stint/httplimit"
)

// bounds count what there is at once, in all and of each address, of IPv6 the /64. It
// may be used from many goroutines at once.
type bounds struct {
	most, perAddress  int
	trusted           httplimit.ClientIP // proxies, which perAddress does not hold
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
// another. The zero address, for a Unix socket, is held by the bound in all alone.
func (b *bounds) enter(addr netip.Addr) (leave func(), why string) {
	addr = addr.Unmap().WithZone("")
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	network, _ := addr.Prefix(bits) // an address has as many
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.all >= b.most:
		return nil, b.full
	case network.IsValid() && b.by[network] >= b.perAddress && !b.trusted.Trusts(addr):
		return nil, b.fullAddress
	}
	b.all++
	b.by[network]++
	return func() { b.leave(network) }, ""
}

func (b *bounds) leave(network netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.by[network]--; b.by[network] == 0 {
		delete(b.by, network)
	}
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

// Enter counts a request of a peer, "address:port", until leave is called, or says
// why there may not be another.
func (r *Requests) Enter(peer string) (leave func(), why string) {
	at, _ := netip.ParseAddrPort(peer) // a Unix socket has no address
	return r.enter(at.Addr())
}
