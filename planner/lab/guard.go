package lab

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Guard lets only this machine's own pages and tools through. A request must name a loopback Host,
// so that no other name that resolves to this machine reaches it (DNS rebinding). A request that
// may change something must not come from the page of another origin.
func Guard(h http.Handler) http.Handler {
	h = http.NewCrossOriginProtection().Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Loopback(r.Host) {
			writeError(w, http.StatusMisdirectedRequest, "the lab answers to localhost and loopback addresses only")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Loopback reports whether an address, with a port or without, names this
// machine's loopback: localhost, 127.0.0.0/8 or ::1.
func Loopback(address string) bool {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
