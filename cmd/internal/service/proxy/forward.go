package proxy

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
)

// Names of headers as [http.Header] keeps them.
const (
	forwardedFor   = "X-Forwarded-For"
	forwardedHost  = "X-Forwarded-Host"
	forwardedProto = "X-Forwarded-Proto"
	realIP         = "X-Real-Ip"
)

// rewrite aims a request at the upstream. X-Forwarded-For, -Host and -Proto are
// those of this connection: what the client claimed was dropped before. A
// trusted proxy's are kept, with its own address at the end of the list.
// X-Real-IP is the client's address.
func (h *Handler) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In.Header, pr.Out.Header
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as the client sent it: what rules look at in it is plain
	pr.SetURL(h.o.Upstream)
	if !h.o.UpstreamHost {
		pr.Out.Host = pr.In.Host
	}
	delete(out, realIP)
	peer, ok := netip.ParseAddrPort(pr.In.RemoteAddr)
	if ok != nil { // a Unix socket
		out[forwardedHost], out[forwardedProto] = []string{pr.In.Host}, proto(pr.In)
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

// keep passes on what a trusted proxy says. A list that it does not speak
// through may be the client's own word.
func (h *Handler) keep(r *http.Request, in, out http.Header, peer string) {
	client, ok := h.o.Client.Addr(r)
	if ok {
		out[realIP] = []string{client.String()}
	}
	switch lines := in[forwardedFor]; {
	case h.o.Client.Header != "" && h.o.Client.Header != forwardedFor:
		if ok && client.String() != peer {
			out[forwardedFor] = []string{client.String() + ", " + peer}
		}
	case len(lines) > 0:
		out[forwardedFor] = []string{strings.Join(lines, ", ") + ", " + peer}
	}
	for _, name := range []string{forwardedHost, forwardedProto} {
		if lines := in[name]; len(lines) == 1 {
			out[name] = lines
		}
	}
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
