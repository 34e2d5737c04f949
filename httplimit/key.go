package httplimit

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
)

// A Key returns the key that a request is counted under: requests with the same key
// share what the limits allow. It returns false when the request has no key; then
// Options.Missing says what happens. An empty key is a key.
//
// A Key is called from many goroutines at once.
type Key func(*http.Request) (key string, ok bool)

// IPKey keys requests by the client's address, or the network around it; see [ClientIP]. A
// key reads "192.0.2.7" or "2001:db8:1:2::/64".
//
// Price: no allocation for an IPv4 client, and none for an IPv6 client among the last few
// thousand.
func IPKey(c ClientIP) Key {
	cache := &prefixTexts{seed: maphash.MakeSeed()}
	return func(r *http.Request) (string, bool) {
		addr, ok := c.Addr(r)
		if !ok {
			return "", false
		}
		bits := c.bits(addr)
		if addr.Is4() && bits == 32 {
			if host, same := peerText(r.RemoteAddr, addr); same {
				return host, true
			}
		}
		prefix, err := addr.Prefix(bits)
		if err != nil {
			return "", false
		}
		return cache.text(prefix), true
	}
}

// prefixTexts remembers the texts of networks, so that a returning client costs no
// allocation. Its size is fixed: a network takes the place of another with the same hash.
type prefixTexts struct {
	seed  maphash.Seed
	slots [4096]atomic.Pointer[prefixText]
}

type prefixText struct {
	prefix netip.Prefix
	text   string
}

func (t *prefixTexts) text(p netip.Prefix) string {
	slot := &t.slots[maphash.Comparable(t.seed, p)%uint64(len(t.slots))]
	if known := slot.Load(); known != nil && known.prefix == p {
		return known.text
	}
	text := p.String()
	if p.IsSingleIP() {
		text = p.Addr().String()
	}
	slot.Store(&prefixText{p, text})
	return text
}

// HeaderKey keys requests by the first line of a header, such as an API key, without the
// blanks around it that HTTP/2 may carry. A request with an empty one has no key.
//
// A client can send any value: put this guard behind the code that checks it, or add a limit
// by address in front. Only a policy refuses requests that servers may read in another way,
// such as those with a second line; see [Ambiguous].
//
// HeaderKey panics if the name is none of a header, or Host, which net/http keeps in Request.Host.
func HeaderKey(name string) Key {
	if name = http.CanonicalHeaderKey(name); name == "" || !isToken(name, "") || name == "Host" {
		panic(fmt.Sprintf("httplimit: HeaderKey(%q): no request has this header", name))
	}
	return func(r *http.Request) (string, bool) {
		lines := r.Header[name]
		if len(lines) == 0 {
			return "", false
		}
		value := trimSpace(lines[0])
		return value, value != ""
	}
}

// CookieKey keys requests by the value of a cookie, the first of this name. A request with an
// empty one has no key. As with [HeaderKey], a client can send any value. CookieKey panics if the name
// is none of a cookie.
func CookieKey(name string) Key {
	if name == "" || !isToken(name, "") {
		panic(fmt.Sprintf("httplimit: CookieKey(%q): no request has this cookie", name))
	}
	return func(r *http.Request) (string, bool) {
		c, err := r.Cookie(name)
		if err != nil || c.Value == "" {
			return "", false
		}
		return c.Value, true
	}
}

// RouteKey keys requests by the pattern of [http.ServeMux] that matched, such as "POST
// /users/{id}". Use it in [Join] to give each route its own count. Wrap the handlers and not
// the mux: in front of the mux, and under the Use of other routers, no route is known yet.
// Options.NoRoute says what becomes of requests without a route; they never share a key.
func RouteKey() Key {
	return func(r *http.Request) (string, bool) {
		if r.Pattern == "" {
			return noRoute, false
		}
		return r.Pattern, true
	}
}

// noRoute is what RouteKey returns where no route is known, alone and in Join.
const noRoute = "\x00no route"

// Join keys requests by several keys together. Each key is written with its length, so that
// ("ab", "c") and ("a", "bc") are different keys. A request that lacks one of the keys has no
// key. Join panics without a key.
func Join(keys ...Key) Key {
	if len(keys) == 0 || slices.ContainsFunc(keys, func(k Key) bool { return k == nil }) {
		panic("httplimit: Join: a key is missing")
	}
	return func(r *http.Request) (string, bool) {
		var b []byte
		for _, key := range keys {
			part, ok := key(r)
			if !ok && part == noRoute {
				return noRoute, false
			}
			if !ok {
				return "", false
			}
			b = strconv.AppendInt(b, int64(len(part)), 10)
			b = append(b, ':')
			b = append(b, part...)
		}
		return string(b), true
	}
}
