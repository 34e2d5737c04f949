package proxy

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// A KeyFunc names the client of a request: requests with equal keys share
// their limits. The empty key is the one for requests that do not say.
type KeyFunc func(*http.Request) string

// ParseKey reads what requests are told apart by: "ip", the client's address;
// "header.NAME", a header's value, with one key for all requests without it; "none", one key for all.
func ParseKey(text string) (KeyFunc, error) {
	name, isHeader := strings.CutPrefix(text, "header.")
	switch {
	case text == "ip":
		return ByAddress, nil
	case text == "none":
		return func(*http.Request) string { return "" }, nil
	case isHeader && strings.EqualFold(name, "host"):
		return func(r *http.Request) string { return strings.ToLower(r.Host) }, nil
	case isHeader && isToken(name):
		return byHeader(name), nil
	}
	return nil, fmt.Errorf("%q is no key: write ip, header.NAME such as header.X-Api-Key, or none", text)
}

// ByAddress is the key by the address of the peer: the one that holds the
// connection, whatever X-Forwarded-For claims. An IPv4 address mapped into
// IPv6 is that IPv4 address, and an IPv6 address stands for its /64, the least
// that one customer of a provider is given. All requests without an address
// (from a Unix socket) share the empty key.
func ByAddress(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr := peer.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return ""
	}
	return network.String()
}

// byHeader keys by a header's value. A request that has the header twice
// counts as one without: the server behind might go by the other value, and a
// client that varies the one would never be limited.
func byHeader(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) string {
		if values := r.Header[name]; len(values) == 1 {
			return values[0]
		}
		return ""
	}
}

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
