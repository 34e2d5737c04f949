package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP says which address a request comes from. The zero value takes the peer of the
// connection, whatever headers say: right for a server that clients reach directly. Behind
// proxies, list their addresses in Trusted.
//
// A peer that is not trusted is the client. If it is trusted, its header says who came before
// it: all X-Forwarded-For lines are read as one list, from right to left, and the first
// address that is not trusted is the client. If all are trusted, the leftmost is. An entry
// that is no address stops the reading, since no trusted proxy vouches for what is to its
// left: the peer is then the client.
//
// Addresses are compared and returned in plain form: an IPv4 address mapped into IPv6 becomes
// that IPv4 address, and zones are dropped.
//
// A ClientIP may be used from many goroutines at once, as long as nothing writes to Trusted.
// Price: no allocation, tens of nanoseconds for each entry that is read, and a few for each
// prefix it is compared with.
type ClientIP struct {
	// Trusted is the addresses of the proxies whose word is taken. The
	// default value is none: headers are ignored.
	Trusted []netip.Prefix
	// Header is the one header that is read from trusted proxies: "X-Forwarded-For";
	// "Forwarded", as in RFC 7239; or a header of one address such as "X-Real-IP" or
	// "CF-Connecting-IP", of which the last line counts. Choose a header that the proxies
	// always set or remove: if they pass it on, a client can write it. The default value is
	// "X-Forwarded-For".
	Header string
	// TrustUnix trusts peers without an address, as on a Unix socket. The default value is
	// false: their requests have no client address.
	TrustUnix bool
	// IPv4Bits and IPv6Bits are how many leading bits of an address make a key; see [IPKey].
	// The default values are 32 and 64: an IPv6 client usually has a /64 to itself, and could
	// otherwise use a new key for each address in it.
	IPv4Bits, IPv6Bits int
}

// maxHops is how many entries of a list are read. Chains of proxies have a handful; a longer
// list is an attempt to make work, and counts as unreadable.
const maxHops = 64

// Addr returns the client's address. It returns false only if the peer has no address, and is
// not trusted or names no client.
func (c ClientIP) Addr(r *http.Request) (netip.Addr, bool) { return c.find(r, nil) }

// peerText returns the address part of remote if it is the text of addr, which saves making
// that text. Only IPv4 addresses have a single spelling.
func peerText(remote string, addr netip.Addr) (string, bool) {
	colon := strings.IndexByte(remote, ':')
	if colon < 7 || colon > 15 {
		return "", false
	}
	var buf [15]byte
	text := addr.AppendTo(buf[:0])
	return remote[:colon], string(text) == remote[:colon]
}

// Explain says how [ClientIP.Addr] comes to its answer, a line for each
// address that is looked at.
func (c ClientIP) Explain(r *http.Request) string {
	var b strings.Builder
	addr, ok := c.find(r, func(text, verdict string) { fmt.Fprintf(&b, "%q: %s\n", text, verdict) })
	if ok {
		fmt.Fprintf(&b, "the client is %v\n", addr)
	} else {
		b.WriteString("there is no client address\n")
	}
	return b.String()
}

// A note is called for each address that is examined, with the verdict on it. It
// may be nil.
type note func(text, verdict string)

func (n note) add(text, verdict string) {
	if n != nil {
		n(text, verdict)
	}
}

// of returns whether an address is trusted, and notes it.
func (n note) of(c *ClientIP, text string, addr netip.Addr) bool {
	trusted := c.Trusts(addr)
	if trusted {
		n.add(text, "trusted")
	} else {
		n.add(text, "not trusted")
	}
	return trusted
}

func (c *ClientIP) find(r *http.Request, n note) (netip.Addr, bool) {
	peer, ok := parseAddr(r.RemoteAddr)
	switch {
	case ok && !n.of(c, r.RemoteAddr, peer):
		return peer, true
	case !ok && !c.TrustUnix:
		n.add(r.RemoteAddr, "a peer without address, not trusted")
		return peer, false
	}
	var client netip.Addr
	var found bool
	switch name := http.CanonicalHeaderKey(c.Header); name {
	case "", "X-Forwarded-For":
		client, found = c.walk(r.Header["X-Forwarded-For"], false, n)
	case "Forwarded":
		client, found = c.walk(r.Header["Forwarded"], true, n)
	default:
		if lines := r.Header[name]; len(lines) > 0 {
			last := lines[len(lines)-1]
			if client, found = parseAddr(last); found {
				n.add(last, "the word of "+c.Header)
			} else {
				n.add(last, "no address")
			}
		}
	}
	if found {
		return client, true
	}
	n.add(r.RemoteAddr, "the peer, since no header says better")
	return peer, ok
}

// Trusts reports whether an address is in Trusted, where ranges may be of IPv4 mapped into
// IPv6. The address must have no zone and not be mapped itself.
func (c *ClientIP) Trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(c.Trusted, func(p netip.Prefix) bool {
		return p.Contains(addr) || p.Addr().Is4In6() && p.Bits() >= 96 &&
			netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Contains(addr)
	})
}

// bits returns how many leading bits of an address make its key.
func (c *ClientIP) bits(addr netip.Addr) int {
	bits, most, standard := c.IPv6Bits, 128, 64
	if addr.Is4() {
		bits, most, standard = c.IPv4Bits, 32, 32
	}
	if bits <= 0 || bits > most {
		return standard
	}
	return bits
}

// Prefix returns the network that the client's address is in, by IPv4Bits and IPv6Bits, of
// which [IPKey] makes a key; false if there is no client address.
func (c ClientIP) Prefix(r *http.Request) (netip.Prefix, bool) {
	addr, ok := c.Addr(r)
	if !ok {
		return netip.Prefix{}, false
	}
	p, err := addr.Prefix(c.bits(addr))
	return p, err == nil
}

// parseAddr reads an address as peers, proxies and people write it: with or without a port,
// and IPv6 in brackets or, without a port, bare. It unmaps the address and drops its zone.
func parseAddr(text string) (addr netip.Addr, ok bool) {
	host := trimSpace(text)
	if len(host) == 0 || len(host) > maxAddrText {
		return addr, false
	}
	switch colon := strings.LastIndexByte(host, ':'); {
	case host[0] == '[':
		end := strings.IndexByte(host, ']')
		if end < 0 || end+1 < len(host) && (host[end+1] != ':' || !isPort(host[end+2:])) {
			return addr, false
		}
		if host = host[1:end]; strings.IndexByte(host, ':') < 0 {
			return addr, false // only IPv6 has brackets
		}
	case colon >= 0 && strings.IndexByte(host, ':') == colon: // a single colon: IPv4 and a port
		if !isPort(host[colon+1:]) {
			return addr, false
		}
		host = host[:colon]
	}
	if zone := strings.IndexByte(host, '%'); zone >= 0 {
		if zone == len(host)-1 || strings.IndexByte(host[:zone], ':') < 0 {
			return addr, false
		}
		host = host[:zone]
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// maxAddrText is more bytes than any address takes: 45, a zone, and a port.
const maxAddrText = 128

func isPort(s string) bool {
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
		if n = n*10 + int(c-'0'); n > 65535 {
			return false
		}
	}
	return s != ""
}

// trimSpace trims only blanks and tabs, the optional white space of HTTP.
func trimSpace(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
