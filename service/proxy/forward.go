package proxy

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
)

// Names of headers as [http.Header] keeps them.
const (
	forwardedFor   = "X-Forwarded-For"
	forwardedHost  = "X-Forwarded-Host"
	forwardedProto = "X-Forwarded-Proto"
	realIP         = "X-Real-Ip"
)

// rewrite directs a request to the upstream. X-Forwarded-For, -Host and -Proto describe this
// connection, since what the client claimed was dropped before. Those of a trusted proxy are kept,
// with its own address at the end of the list. X-Real-IP is the client's address.
func (h *Handler) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In.Header, pr.Out.Header
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as the client sent it: the guard refuses ambiguous parameters
	pr.SetURL(h.target)
	if !h.o.UpstreamHost {
		pr.Out.Host = pr.In.Host
	}
	delete(out, realIP)
	out[cdnLoop] = h.hops(in[cdnLoop])
	peer, ok := netip.ParseAddrPort(pr.In.RemoteAddr)
	if ok != nil { // a Unix socket
		out[forwardedHost], out[forwardedProto] = []string{pr.In.Host}, proto(pr.In)
		if h.o.Client.TrustUnix {
			h.keep(pr.In, in, out, "")
		}
		return
	}
	addr := peer.Addr().Unmap().WithZone("")
	text := addressText(pr.In.RemoteAddr, addr)
	values := []string{text, pr.In.Host, text} // one allocation for three headers
	out[forwardedFor], out[forwardedHost], out[forwardedProto] = values[0:1:1], values[1:2:2], proto(pr.In)
	out[realIP] = values[2:3:3]
	if h.o.Client.Trusts(addr) {
		h.keep(pr.In, in, out, text)
	}
}

// keep passes on what a trusted proxy says. peer is the proxy's address, or "" at a Unix socket. If
// the proxy names its clients in another header, X-Forwarded-For may be the client's own claim, and
// is made anew.
func (h *Handler) keep(r *http.Request, in, out http.Header, peer string) {
	client, ok := h.o.Client.Addr(r)
	if ok {
		out[realIP] = []string{client.String()}
	}
	list := in[forwardedFor]
	if h.o.Client.Header != "" && h.o.Client.Header != forwardedFor {
		list = nil
		if ok && client.String() != peer {
			list = []string{client.String()}
		}
	}
	if len(list) > 0 {
		if peer != "" {
			list = append(list[:len(list):len(list)], peer)
		}
		out[forwardedFor] = []string{strings.Join(list, ", ")}
	}
	for _, name := range []string{forwardedHost, forwardedProto} {
		if lines := in[name]; len(lines) == 1 {
			out[name] = lines
		}
	}
}

const mostUnlisted = 16 // peers that the log warns of

// unlisted are the peers that seem to be proxies, but are not trusted.
type unlisted struct {
	mu   sync.Mutex
	said map[netip.Addr]bool
}

// note warns once of a peer on a private network that sends X-Forwarded-For, but is itself what
// rules take for the client. A peer elsewhere may be a client that lies.
func (u *unlisted) note(o *Options, peer netip.Addr, client bool) {
	if !client || !peer.IsPrivate() && !peer.IsLoopback() || o.Client.Trusts(peer) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.said[peer] || len(u.said) == mostUnlisted {
		return
	}
	if u.said == nil {
		u.said = make(map[netip.Addr]bool)
	}
	u.said[peer] = true
	o.Log.Warn("requests of a peer carry X-Forwarded-For, but it is not in trusted_proxies: all its clients share a key", "peer", peer.String())
}

func (h *Handler) trusts(peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil { // a Unix socket
		return h.o.Client.TrustUnix
	}
	return h.o.Client.Trusts(at.Addr().Unmap().WithZone(""))
}

// cdnLoop is the header in which proxies name themselves (RFC 8586), so that each notices a request
// that has come back to it. Via would serve as well, but for requests with Via nginx compresses nothing.
const cdnLoop = "Cdn-Loop"

// hops returns the names of the proxies that a request has passed, this one included.
func (h *Handler) hops(before []string) []string {
	if len(before) == 0 {
		return h.hop[:1:1] // an append copies it
	}
	return []string{strings.Join(before, ", ") + ", " + h.hop[0]}
}

// looped reports whether a request has passed this proxy before.
func (h *Handler) looped(r *http.Request) bool {
	for _, line := range r.Header[cdnLoop] {
		if strings.Contains(line, h.hop[0]) {
			return true
		}
	}
	return false
}

var protoHTTP, protoHTTPS = []string{"http"}, []string{"https"}

// proto returns how the client has connected. The slices are shared and read-only:
// an append copies them.
func proto(r *http.Request) []string {
	if r.TLS != nil {
		return protoHTTPS[:1:1]
	}
	return protoHTTP[:1:1]
}

// addressText returns the text of a peer's address, without an allocation where
// it is the beginning of the peer's text.
func addressText(remote string, addr netip.Addr) string {
	if colon := strings.IndexByte(remote, ':'); addr.Is4() && colon > 0 {
		return remote[:colon]
	}
	return addr.String()
}
