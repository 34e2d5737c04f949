package httplimit

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
)

// A Key returns the key that a request is counted under: requests with the same key
// share what the limits allow. It returns false when the request has no key; then
// Options.Missing says what happens. An empty key is a key.
//
// A Key is called from many goroutines at once.
type Key func(*http.Request) (key string, ok bool)

// IPKey keys requests by the client's address, or by the network that it is in;
// see [ClientIP]. Keys read "192.0.2.7" and "2001:db8:1:2::/64".
//
// Price: no allocation for an IPv4 client, and none for an IPv6 client that is
// among the last few thousand.
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

// prefixTexts remembers the texts of networks, so that a client that comes
// again costs no allocation. What it holds is bounded: a network takes the
// place of another with the same hash.
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

// HeaderKey keys requests by the first line of a header, such as an API key, without
// the blanks around it that HTTP/2 carries. An empty one counts as none.
//
// A client can send what it likes: put this behind what checks the key, or add
// a limit by address in front. Requests that servers may read in another way, such
// as those with a second line, are refused under a policy; see [Ambiguous].
func HeaderKey(name string) Key {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, bool) {
		lines := r.Header[name]
		if len(lines) == 0 {
			return "", false
		}
		value := trimSpace(lines[0])
		return value, value != ""
	}
}

// CookieKey keys requests by the value of a cookie, the first of that name. An
// empty one counts as none. What was said of [HeaderKey] holds here too.
func CookieKey(name string) Key {
	return func(r *http.Request) (string, bool) {
		c, err := r.Cookie(name)
		if err != nil || c.Value == "" {
			return "", false
		}
		return c.Value, true
	}
}

// RouteKey keys requests by the pattern of [http.ServeMux] that matched, such as
// "POST /users/{id}". Use it in [Join] to give each route its own count. It has a
// key inside of a mux only, so wrap the handlers and not the mux: in front of it,
// and under the Use of other routers, no route is known yet. Options.NoRoute
// says what becomes of such requests; they never share a key.
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

// Join keys requests by several keys together. Each is written with its
// length, so that ("ab", "c") and ("a", "bc") never meet. A request that lacks
// one has no key.
func Join(keys ...Key) Key {
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
