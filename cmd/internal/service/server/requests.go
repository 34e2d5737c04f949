package server

import (
	"net/netip"
	"sync"

	"github.com/stint-dev/stint/httplimit"
)

// Requests bounds requests, such as those that hold a connection to the server behind.
// One connection of HTTP/2 has many of them, so that bounds on the connections of
// clients do not hold what requests take. It may be used from many goroutines at once.
type Requests struct {
	most, perAddress int
	trusted          httplimit.ClientIP

	mu  sync.Mutex
	all int
	by  map[netip.Prefix]int
}

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
	return &Requests{most: most, perAddress: perAddress, trusted: httplimit.ClientIP{Trusted: trusted}, by: make(map[netip.Prefix]int)}
}

// Most returns how many requests there may be in all.
func (r *Requests) Most() int { return r.most }

// Enter counts a request of a peer, "address:port", until leave is called, or says
// why there may not be another.
func (r *Requests) Enter(peer string) (leave func(), why string) {
	var network netip.Prefix
	trusted := true
	if at, err := netip.ParseAddrPort(peer); err == nil { // a Unix socket has no address
		network = networkOfAddr(at.Addr())
		trusted = r.trusted.Trusts(at.Addr().Unmap().WithZone(""))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.all >= r.most:
		return nil, "there are as many requests as there may be"
	case r.by[network] >= r.perAddress && !trusted:
		return nil, "its address has as many requests as one may have"
	}
	r.all++
	r.by[network]++
	return func() { r.leave(network) }, ""
}

func (r *Requests) leave(network netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.by[network]--; r.by[network] == 0 {
		delete(r.by, network)
	}
}
