package request

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"
)

// HTTP reads the attributes of an HTTP request. It is for one goroutine. Where a header or
// parameter comes more than once, it reads the first; package httplimit's Ambiguous must refuse
// requests that servers read differently first.
type HTTP struct {
	Method, Host string   // "" for none
	URL          *url.URL // with the path as it was sent; nil for none
	RawQuery     string   // as it was sent
	Header       http.Header
	// Client returns the client's address and its text. Nil if it is not known.
	Client func() (addr netip.Addr, text string, ok bool)
	// Pointer returns the value at a JSON pointer in the body. Nil without a body.
	Pointer func(pointer string) (value string, ok bool)
	// Claim returns a claim of the request's token. If known is false, the claim cannot be known at
	// the moment. If Claim is nil, claims come from More.
	Claim func(name string) (value string, ok, known bool)
	// More returns attributes that HTTP does not have. May be nil.
	More func(name string) (value string, ok bool)

	By      Interfaces // the interface of the request; 0 means one that can give every attribute
	values  url.Values // of RawQuery, parsed at the first use
	unknown bool       // a claim was asked for that cannot be known
}

// Reset prepares q for another request.
func (q *HTTP) Reset(method, host string, u *url.URL, rawQuery string, header http.Header) {
	q.Method, q.Host, q.URL, q.RawQuery, q.Header, q.values, q.unknown = method, host, u, rawQuery, header, nil, false
}

// Described returns a request with the given attributes, by their names.
func Described(attributes map[string]string) *HTTP {
	q := &HTTP{Method: attributes[Method.String()], Host: cmp.Or(attributes[Host.String()], attributes[HostHeader.String()]), URL: new(url.URL), Header: make(http.Header)}
	q.URL.Opaque, q.RawQuery, _ = strings.Cut(attributes[Path.String()], "?")
	for name, value := range attributes {
		a := Of(name)
		if line, ok := a.Line(); ok {
			q.Header.Add(line, value)
		}
		switch a.Kind {
		case Cookie:
			cookies := append(q.Header["Cookie"], a.Rest()+"="+value)
			q.Header["Cookie"] = []string{strings.Join(cookies, "; ")}
		case Query:
			q.RawQuery = strings.TrimPrefix(q.RawQuery+"&"+url.QueryEscape(a.Rest())+"="+url.QueryEscape(value), "&")
		}
	}
	return q
}

// Request returns the request in the form of net/http, without a body.
func (q *HTTP) Request() *http.Request {
	u := &url.URL{RawQuery: q.RawQuery}
	if q.URL != nil {
		u.Opaque = SentPath(q.URL)
	}
	return &http.Request{Method: q.Method, Host: q.Host, URL: u, Header: q.Header}
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

// Unknown reports whether a claim was asked for that cannot be known at the moment.
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

// SentPath returns a path as it was sent. EscapedPath would encode it again if it has a character
// such as |, and would lose that a slash was encoded; some routers use RawPath.
func SentPath(u *url.URL) string {
	if u.Opaque != "" { // a target such as a:/login is no path
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
	var room [64]byte // saves an allocation for usual names
	return first(q.Header[string(canonical(room[:0], name))])
}

func (q *HTTP) query(name string) (string, bool) {
	if q.values == nil {
		q.values, _ = url.ParseQuery(q.RawQuery) // parameters that cannot be parsed are left out, as in net/http
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

// canonical appends the name of a header in the form of [http.Header].
func canonical(to []byte, name string) []byte {
	upper := true
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= utf8.RuneSelf: // no valid name: leave it as it was sent
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

// IsGRPC reports whether a Content-Type is that of a gRPC call. That of gRPC-Web is not, since
// its status is in the body.
func IsGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}
