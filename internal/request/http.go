package request

import (
	"net/http"
	"net/netip"
	"net/url"
	"unicode/utf8"
)

// HTTP reads the attributes of a request of HTTP. It is for one goroutine. What servers
// read in different ways is for package httplimit's Ambiguous to find before: of what comes
// more than once, HTTP reads the first.
type HTTP struct {
	Method, Host string   // "" is none
	URL          *url.URL // its path is as it was sent; nil is none
	RawQuery     string   // as it was sent
	Header       http.Header
	// Client returns the client's address and its text. Nil is none.
	Client func() (addr netip.Addr, text string, ok bool)
	// Pointer returns what a JSON pointer leads to in the body. Nil is no body.
	Pointer func(pointer string) (value string, ok bool)
	// Claim returns a claim of the token that came with the request, and whether that can be
	// known at the moment. Nil leaves claims to More.
	Claim func(name string) (value string, ok, known bool)
	// More returns what is no attribute of HTTP. Nil is nothing.
	More func(name string) (value string, ok bool)

	By      Interfaces // the interface by which it came; none is one that gives whatever rules ask for
	values  url.Values // of RawQuery, once it has been asked for
	unknown bool       // a claim has been asked for that cannot be known
}

// Reset makes q ready for another request.
func (q *HTTP) Reset(method, host string, u *url.URL, rawQuery string, header http.Header) {
	q.Method, q.Host, q.URL, q.RawQuery, q.Header, q.values, q.unknown = method, host, u, rawQuery, header, nil, false
}

// Attribute returns the value of an attribute, by its name.
func (q *HTTP) Attribute(name string) (value string, ok bool) {
	a := Of(name)
	if read := kinds[a.Kind].read; read != nil {
		return read(q, a.Rest())
	}
	if a.Kind == Claim && q.Claim != nil {
		value, ok, known := q.Claim(a.Rest())
		q.unknown = q.unknown || !known
		return value, ok
	}
	if q.More != nil {
		return q.More(name)
	}
	return "", false
}

// Unknown reports whether a claim has been asked for that cannot be known at the moment.
func (q *HTTP) Unknown() bool { return q.unknown }

// Interface returns By: see policy.Attributes.
func (q *HTTP) Interface() Interfaces { return q.By }

func (q *HTTP) method(string) (string, bool) { return q.Method, q.Method != "" }

func (q *HTTP) host(string) (string, bool) { return q.Host, q.Host != "" }

func (q *HTTP) path(string) (string, bool) {
	if q.URL == nil {
		return "", false
	}
	return SentPath(q.URL), true
}

// SentPath returns a path as it was sent. EscapedPath would encode it anew where it
// has a character such as |, and lose that a slash was encoded: some routers go by
// RawPath.
func SentPath(u *url.URL) string {
	if u.Opaque != "" { // of a target such as a:/login, which is no path
		return u.Opaque
	}
	if u.RawPath != "" {
		if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path {
			return u.RawPath
		}
	}
	return u.EscapedPath()
}

func (q *HTTP) ip(string) (string, bool) {
	if q.Client == nil {
		return "", false
	}
	_, text, ok := q.Client()
	return text, ok
}

func (q *HTTP) authorization(string) (string, bool) { return first(q.Header["Authorization"]) }

func (q *HTTP) header(name string) (string, bool) {
	var room [64]byte // so that a usual name costs no allocation
	return first(q.Header[string(canonical(room[:0], name))])
}

func (q *HTTP) query(name string) (string, bool) {
	if q.values == nil {
		q.values, _ = url.ParseQuery(q.RawQuery) // what can be read of it, as net/http does
	}
	return first(q.values[name])
}

func (q *HTTP) cookie(name string) (string, bool) {
	cookie, err := (&http.Request{Header: q.Header}).Cookie(name)
	if err != nil {
		return "", false
	}
	return cookie.Value, true
}

func (q *HTTP) body(pointer string) (string, bool) {
	if q.Pointer == nil {
		return "", false
	}
	return q.Pointer(pointer)
}

func first(values []string) (string, bool) {
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// canonical appends the name of a header as [http.Header] keeps it.
func canonical(to []byte, name string) []byte {
	upper := true
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= utf8.RuneSelf: // no name of a header: it stays as it was sent
			return append(to[:0], name...)
		case upper && 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		case !upper && 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		upper = c == '-'
		to = append(to, c)
	}
	return to
}
