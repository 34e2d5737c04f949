package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
)

// A fault is why a request is refused whatever the rules say, with the status of HTTPStatus.
type fault string

func (f fault) Error() string { return string(f) }

// Is makes a fault a [policy.ErrRequest], for metrics.
func (f fault) Is(target error) bool { return target == policy.ErrRequest }

// As makes a fault a [policy.RequestError], for the log.
func (f fault) As(target any) bool {
	request, ok := target.(**policy.RequestError)
	if ok {
		*request = &policy.RequestError{Attribute: "request", Reason: string(f)}
	}
	return ok
}

const (
	errLoop     = fault("the request has come by here before")
	errTunnel   = fault("CONNECT asks for a tunnel, which does not pass")
	errTarget   = fault("the target of the request is neither a path nor an http URL")
	errFragment = fault("the target of the request has a #, which is not sent")
	errBlank    = fault("the target of the request has a blank or a control character, which must be encoded")
	errMethod   = fault("the method is no word")
	errHost     = fault("Host is neither a name nor an address")
	errNoHost   = fault("Host is missing, and decides about this request")
	errPath     = fault("the path leads out of what is served here")
)

// clean returns the request in the one form that rules decide by and the upstream gets: the target a
// path, the host in lower case, the method in upper case if a rule reads it, and the header as
// cleanHeader returns it. The error is for a request that has no such form. r stays unchanged.
func (h *Handler) clean(rules *policy.Rules, r *http.Request) (*http.Request, error) {
	switch {
	case h.looped(r):
		return nil, errLoop
	case strings.EqualFold(r.Method, http.MethodConnect):
		return nil, errTunnel
	case r.URL.Opaque != "" || r.URL.Path != "" && r.URL.Path[0] != '/':
		return nil, errTarget
	case r.URL.Scheme != "" && r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return nil, errTarget
	case strings.IndexByte(r.RequestURI, '#') >= 0:
		return nil, errFragment
	case strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c == 0x7f }): // HTTP/2 can transmit them
		return nil, errBlank
	case !httpguts.ValidHeaderFieldName(r.Method): // a method is a token, like the name of a header
		return nil, errMethod
	}
	host, err := cleanHost(r.Host)
	if err != nil {
		return nil, err
	}
	if host == "" && rules.Enforces("host") {
		return nil, errNoHost
	}
	sent := asSent(r.URL)
	target, err := cleanPath(sent)
	if err != nil {
		if prefix := h.target.Path; prefix != "" && prefix != "/" && climbs(sent.EscapedPath()) {
			return nil, errPath
		}
		target = sent // no rule reads the path, or the guard refuses the request
	}
	method := r.Method
	if upper := strings.ToUpper(method); upper != method && rules.Enforces("method") {
		method = upper
	}
	header, changed := h.cleanHeader(r.Header, h.trusts(r.RemoteAddr))
	if !changed && host == r.Host && target == r.URL && method == r.Method {
		return r, nil
	}
	out := r.WithContext(r.Context())
	out.Host, out.URL, out.Method, out.Header = host, target, method, header
	return out, nil
}

// asSent returns a URL whose EscapedPath is what the client sent, except that characters such as | are
// encoded. For one of them, net/url would encode the whole path anew, and make a slash of each %2f.
func asSent(u *url.URL) *url.URL {
	if u.RawPath == "" || u.EscapedPath() == u.RawPath {
		return u
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(u.RawPath)+8)
	for _, c := range []byte(u.RawPath) {
		if unreserved(c) || strings.IndexByte("%/!$&'()*+,;=:@[]", c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	out := *u
	out.RawPath = string(b)
	return &out
}

// climbs reports whether a server that decodes a path once or more may find a segment .. in it.
func climbs(path string) bool {
	for range 3 {
		path = strings.NewReplacer("%2e", ".", "%2E", ".", "%25", "%").Replace(path)
	}
	return strings.Contains(path, "..")
}

// cleanHost returns a Host in the form that servers agree on: in lower case,
// without the dot at the end and an empty port.
func cleanHost(host string) (string, error) {
	name, err := policy.CleanHost(host)
	if err != nil {
		return "", errHost
	}
	if name == host && strings.IndexByte(name, ':') < 0 {
		return host, nil
	}
	port := ""
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') && colon+1 < len(host) {
		port = host[colon:]
	}
	if strings.IndexByte(name, ':') >= 0 {
		if host[0] != '[' {
			return "", errHost // an address of IPv6 needs its brackets
		}
		name = "[" + name + "]"
	}
	return name + port, nil
}

// cleanPath returns a URL with the path that rules decide by. It keeps the client's encoding where
// encoding makes a difference, and a slash at the end, which servers take for part of a name.
func cleanPath(u *url.URL) (*url.URL, error) {
	raw := u.EscapedPath()
	if raw == "" {
		raw = "/"
	}
	if _, err := policy.CleanPath(raw); err != nil {
		return nil, err
	}
	clean := normal(raw)
	if clean == raw && u.Host == "" && u.Scheme == "" {
		return u, nil
	}
	path, err := url.PathUnescape(clean)
	if err != nil {
		return nil, err
	}
	return &url.URL{Path: path, RawPath: clean, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}, nil
}

// normal resolves the empty and dot segments of an encoded path, and decodes what needs no encoding
// (RFC 3986, 6.2.2). The path begins with a slash, and [policy.CleanPath] has accepted it, so decoding
// makes no dot segment.
func normal(raw string) string {
	if strings.IndexByte(raw, '%') < 0 && !strings.Contains(raw, "//") && !strings.Contains(raw, "/.") {
		return raw
	}
	b := make([]byte, 0, len(raw))
	segments := strings.Split(raw[1:], "/")
	for _, segment := range segments {
		switch segment {
		case "", ".":
		case "..":
			b = b[:max(strings.LastIndexByte(string(b), '/'), 0)]
		default:
			b = appendNormal(append(b, '/'), segment)
		}
	}
	if last := segments[len(segments)-1]; len(b) == 0 || last == "" || last == "." || last == ".." {
		b = append(b, '/')
	}
	return string(b)
}

// appendNormal appends a segment, with what needs no encoding decoded and the
// encoding of the rest in upper case.
func appendNormal(b []byte, segment string) []byte {
	for i := 0; i < len(segment); i++ {
		if segment[i] != '%' || i+2 >= len(segment) {
			b = append(b, segment[i])
			continue
		}
		code := strings.ToUpper(segment[i : i+3])
		if plain, err := url.PathUnescape(code); err == nil && unreserved(plain[0]) {
			b = append(b, plain[0])
		} else {
			b = append(b, code...)
		}
		i += 2
	}
	return b
}

func unreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// cleanHeader returns the header without three kinds of fields. Names with an underscore go unless they
// are allowed, since many servers read it as a hyphen. Claims about the client ([request.Claimed]) go
// unless a trusted proxy makes them, and in other spellings always. Upgrades go unless they are allowed.
func (h *Handler) cleanHeader(header http.Header, trusted bool) (clean http.Header, changed bool) {
	var away []string
	for name := range header {
		plain, foreign := name, strings.IndexFunc(name, isForeign)
		if foreign >= 0 {
			plain = http.CanonicalHeaderKey(strings.Map(hyphenate, name))
		}
		if foreign >= 0 && name[foreign] == '_' && !h.o.Underscores || (foreign >= 0 || !trusted) && request.Claimed(plain) {
			away = append(away, name)
		}
	}
	if upgrade := header["Upgrade"]; upgrade != nil && !h.upgrades(upgrade) {
		away = append(away, "Upgrade")
	}
	if header["Http2-Settings"] != nil {
		away = append(away, "Http2-Settings")
	}
	if away == nil {
		return header, false
	}
	clean = header.Clone()
	for _, name := range away {
		delete(clean, name)
	}
	return clean, true
}

// isForeign reports whether names of headers usually lack a character.
func isForeign(c rune) bool {
	return c != '-' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9')
}

// hyphenate maps a character of a header's name as servers do that turn such names into variables.
func hyphenate(c rune) rune {
	if isForeign(c) {
		return '-'
	}
	return unicode.ToLower(c)
}

func (h *Handler) upgrades(lines []string) bool {
	return len(lines) == 1 && slices.ContainsFunc(h.o.Upgrades, func(one string) bool { return strings.EqualFold(lines[0], one) })
}
