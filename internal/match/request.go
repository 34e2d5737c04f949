package match

import (
	"bytes"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/request"
)

// Attributes are the attributes of a request; policy.Attributes lists their names.
type Attributes interface {
	Attribute(name string) (value string, ok bool)
}

// Known are Attributes that have parsed some of the request already.
type Known interface {
	// Addr returns the address in the attribute ip, unmapped and without a zone, and the text of
	// the attribute.
	Addr() (addr netip.Addr, text string, ok bool)
	// PlainPath returns the path, and whether it is known to be plain: see [PlainPath].
	PlainPath() (path string, plain bool)
}

// A Request is the attributes of a request while rules are matched. Values that have several
// spellings are normalised once: call Clean first. It belongs to one goroutine.
type Request struct {
	Attrs Attributes
	// Unknown is set when rules asked for a claim that is not known at the moment: Attrs then has a
	// method Unknown() bool, which returned true.
	Unknown bool

	known Known      // Attrs, if they are Known; otherwise nil
	path  string     // clean
	host  string     // clean
	ip    netip.Addr // unmapped, without a zone
	ipRaw string

	ipKnown          bool
	hasPath, hasHost bool
}

// Looks says which attributes rules read that must be normalised, or checked, before any rule is
// tried.
type Looks struct {
	Path, Host bool
	FoldPath   bool     // the case of letters in the path does not matter
	Headers    []string // attributes header.NAME

	// Only rules in shadow read the attribute: if it is ambiguous, it counts as missing.
	ShadowPath, ShadowHost bool
}

// NewRequest returns a request of attributes.
func NewRequest(attrs Attributes) *Request {
	known, _ := attrs.(Known)
	return &Request{Attrs: attrs, known: known}
}

// Clean normalises what rules read. For a request that servers read differently it returns the name
// of the ambiguous attribute, and the reason.
func (q *Request) Clean(l *Looks) (attribute, reason string) {
	if l.Path {
		if reason = q.cleanPath(l.FoldPath); reason != "" {
			if !l.ShadowPath {
				return "path", reason
			}
			q.path, q.hasPath = "", false
		}
	}
	if l.Host {
		if q.host, q.hasHost = q.Attrs.Attribute("host"); q.hasHost {
			if q.host, reason = CleanHost(q.host); reason != "" {
				if !l.ShadowHost {
					return "host", reason
				}
				q.host, q.hasHost = "", false
			}
		}
	}
	for _, attribute := range l.Headers {
		if v, ok := q.Attrs.Attribute(attribute); ok {
			if reason = HeaderFault(attribute, v); reason != "" {
				return attribute, reason
			}
		}
	}
	return "", ""
}

func (q *Request) cleanPath(fold bool) (reason string) {
	if q.known != nil {
		q.path, q.hasPath = q.known.PlainPath()
	}
	if !q.hasPath {
		if q.path, q.hasPath = q.Attrs.Attribute("path"); q.hasPath {
			q.path, reason = CleanPath(q.path)
		}
	}
	if fold && reason == "" {
		q.path, reason = FoldPath(q.path)
	}
	return reason
}

// Path returns the clean path. It is empty if no rule reads it.
func (q *Request) Path() string { return q.path }

// Value returns the normalised value of an attribute, and whether the request has it. An address
// that cannot be parsed counts as missing.
func (q *Request) Value(a request.Attribute) (string, bool) {
	switch a.Kind {
	default:
		return q.Attrs.Attribute(a.Name)
	case request.Claim:
		v, ok := q.Attrs.Attribute(a.Name)
		if !ok && !q.Unknown {
			late, may := q.Attrs.(interface{ Unknown() bool })
			q.Unknown = may && late.Unknown()
		}
		return v, ok
	case request.Path:
		return q.path, q.hasPath
	case request.Host:
		return q.host, q.hasHost
	case request.Method:
		v, ok := q.Attrs.Attribute(a.Name)
		return upper(v), ok
	case request.Authorization:
		v, ok := q.Attrs.Attribute(a.Name)
		return credentials(v), ok
	case request.IP:
		if _, ok := q.Addr(); !ok {
			return "", false
		}
		return q.AddrText(), true
	}
}

// upper returns a method in upper case. Most methods already are.
func upper(method string) string {
	for i := range len(method) {
		if c := method[i]; c < 'A' || c > 'Z' {
			return strings.ToUpper(method)
		}
	}
	return method
}

// AddrText returns the text of Addr, which must exist.
func (q *Request) AddrText() string {
	if q.ip.Is4() && len(q.ipRaw) <= len("255.255.255.255") {
		return q.ipRaw // an IPv4 address has only one spelling
	}
	return q.ip.String()
}

// Addr returns the client's address, without the port that may follow it.
func (q *Request) Addr() (netip.Addr, bool) {
	if !q.ipKnown {
		q.ipKnown = true
		if q.known != nil {
			q.ip, q.ipRaw, _ = q.known.Addr()
			return q.ip, q.ip.IsValid()
		}
		q.ipRaw, _ = q.Attrs.Attribute("ip")
		if addr, err := netip.ParseAddr(q.ipRaw); err == nil {
			if q.ip = addr.WithZone("").Unmap(); q.ip != addr {
				q.ipRaw = q.ip.String()
			}
		} else if at, err := netip.ParseAddrPort(q.ipRaw); err == nil { // many programs give the peer of a connection
			q.ip = at.Addr().WithZone("").Unmap()
			q.ipRaw = q.ip.String()
		}
	}
	return q.ip, q.ip.IsValid()
}

const maxPath = 8192 // bytes; servers refuse longer request lines

// plainBytes are the bytes of a path segment that are never encoded and mean the same to every
// server.
var plainBytes = func() (plain [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~." {
		plain[c] = true
	}
	return plain
}()

// PlainPath reports whether a path, decoded or not, is clean already: none of its bytes is ever
// encoded, and no segment is empty or begins with a dot. Most paths are plain, and need only this
// one scan.
func PlainPath(path string) bool {
	if path == "" || path[0] != '/' || len(path) > maxPath {
		return false
	}
	for i := range len(path) {
		if plainBytes[path[i]] {
			continue
		}
		if path[i] != '/' || i+1 == len(path) || path[i+1] == '/' || path[i+1] == '.' {
			return false
		}
	}
	return true
}

// CleanPath returns the path against which rules are matched: decoded once, without empty segments,
// dot segments, a slash at the end, and a query. It returns a reason for a path that servers read
// differently: it has an encoded or double-encoded separator, a backslash, a semicolon, a #, control
// characters, dot segments that appear by decoding, or bytes that are not UTF-8; it does not begin
// with a slash; or it has more than 8,192 bytes. docs/RULES.md has the table.
func CleanPath(raw string) (clean, reason string) {
	if PlainPath(raw) {
		return raw, ""
	}
	if i := strings.IndexByte(raw, '?'); i >= 0 {
		raw = raw[:i]
	}
	switch {
	case raw == "" || raw == "/" || raw == "*":
		return "/", "" // OPTIONS * asks about the whole server
	case raw[0] != '/':
		return "", "must begin with a slash"
	case len(raw) > maxPath:
		return "", "longer than 8192 bytes"
	}
	tidy, plain := true, true
	for i := range len(raw) {
		c := raw[i]
		switch {
		case c == '%' || c >= utf8.RuneSelf:
			plain = false
		case c < ' ' || c == 0x7f:
			return "", "control character"
		case c == '\\' || c == ';' || c == '#':
			return "", "a backslash, semicolon or # that is not data everywhere"
		case c == '/' && (i+1 == len(raw) || raw[i+1] == '/' || raw[i+1] == '.'):
			tidy = false
		}
	}
	path := raw
	if !plain {
		if path, reason = decodePath(raw); reason != "" {
			return "", reason
		}
	}
	if !tidy {
		path = joinPath(path)
	}
	return path, ""
}

// decodePath decodes each segment once. It refuses a path that would read differently if it were
// decoded earlier, later or twice.
func decodePath(raw string) (path, reason string) {
	b := make([]byte, 0, len(raw))
	start, escaped := 0, false // start of the segment in b; whether the segment had an escape
	for i := 0; i <= len(raw); i++ {
		if i == len(raw) || raw[i] == '/' {
			if seg := string(b[start:]); escaped && (seg == "." || seg == "..") {
				return "", "an encoded dot segment (%2E), which not all servers resolve: write the path without it"
			}
			if i < len(raw) {
				b = append(b, '/')
				start, escaped = len(b), false
			}
			continue
		}
		c := raw[i]
		if c != '%' {
			b = append(b, c)
			continue
		}
		if i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2]) {
			return "", "% without two hexadecimal digits: write %25 for a percent sign"
		}
		c = unhex(raw[i+1])<<4 | unhex(raw[i+2])
		i += 2
		escaped = true
		switch {
		case c == '/' || c == '\\':
			return "", "an encoded slash or backslash (%2F, %5C), which not all servers take for a plain one: write a slash, or send the value in the query"
		case c < ' ' || c == 0x7f:
			return "", "an encoded control character, such as %0A: leave it out"
		case c == ';':
			return "", "an encoded semicolon (%3B), which not all servers take for data: leave it out"
		}
		b = append(b, c)
	}
	for i := range b {
		if b[i] == '%' && i+2 < len(b) && isHex(b[i+1]) && isHex(b[i+2]) {
			return "", "encoded twice, such as %252F: encode it once"
		}
	}
	if !utf8.Valid(b) {
		return "", "not UTF-8"
	}
	for _, c := range string(b) {
		if c >= 0x80 && c < 0xa0 || c == 0x2028 || c == 0x2029 {
			return "", "an encoded control character, such as %0A: leave it out"
		}
	}
	return string(b), ""
}

// FoldPath returns one path for all paths that are equal to servers that ignore case, and dots and
// blanks at the end. Express and fiber fold ASCII; ASP.NET folds each letter by itself, but none into
// ASCII. Caddy folds two other letters into i and k, so FoldPath returns a reason for a path with one
// of them. Caddy up to version 2.6 ignores dots and blanks at the end, as Windows does in file names.
func FoldPath(path string) (folded, reason string) {
	folded = strings.Map(func(c rune) rune {
		switch one := unicode.ToLower(unicode.ToUpper(c)); {
		case c < utf8.RuneSelf:
			return unicode.ToLower(c)
		case unicode.ToLower(c) < utf8.RuneSelf:
			reason = "a capital I with a dot or a Kelvin sign, which some servers take for i and k"
			return c
		case one < utf8.RuneSelf: // for example the long s
			return c
		default:
			return one
		}
	}, strings.TrimRight(path, "/. "))
	if folded == "" {
		folded = "/"
	}
	return folded, reason
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// joinPath resolves empty and dot segments, as in RFC 3986, section 5.2.4.
func joinPath(path string) string {
	b := make([]byte, 0, len(path))
	for rest := path[1:]; rest != ""; {
		var seg string
		switch seg, rest = cutSegment(rest); seg {
		case "", ".":
		case "..":
			b = b[:max(bytes.LastIndexByte(b, '/'), 0)]
		default:
			b = append(append(b, '/'), seg...)
		}
	}
	if len(b) == 0 {
		return "/"
	}
	return string(b)
}

func cutSegment(path string) (seg, rest string) {
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return path, ""
}

// CleanHost returns the host against which rules are matched: in lower case, without port,
// brackets, and the dot at the end. It returns a reason for a host that is no name and no address,
// for example with two ports or an empty label, since servers read those differently. An empty host
// counts as missing.
func CleanHost(raw string) (clean, reason string) {
	name, port, bracketed := raw, "", false
	switch colon := strings.IndexByte(raw, ':'); {
	case strings.HasPrefix(raw, "["):
		end := strings.IndexByte(raw, ']')
		if end < 0 {
			return "", "a bracket that is not closed"
		}
		name, port, bracketed = raw[1:end], raw[end+1:], true
	case colon >= 0 && colon == strings.LastIndexByte(raw, ':'):
		name, port = raw[:colon], raw[colon:]
	}
	if port != "" && (port[0] != ':' || !isPort(port[1:])) {
		return "", "what follows the name is no port"
	}
	if bracketed || strings.IndexByte(name, ':') >= 0 {
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", "neither a name nor an address"
		}
		return strings.ToLower(name), ""
	}
	if name = strings.TrimSuffix(name, "."); len(name) > maxHost || raw != "" && (name == "" || name[len(name)-1] == '.') {
		return "", "no name, or one of more than 253 bytes"
	}
	before := byte('.')
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' && (c != '.' || before == '.') {
			return "", "a name is letters, digits, hyphens and underscores, with single dots between"
		}
		before = c
	}
	return strings.ToLower(name), ""
}

const maxHost = 253 // bytes: more than any name in the DNS

// isPort reports whether text is a port, or empty, as it may be after a colon.
func isPort(text string) bool {
	n := 0
	for i := range len(text) {
		if c := text[i]; c < '0' || c > '9' {
			return false
		}
		if n = n*10 + int(text[i]-'0'); n > 65535 {
			return false
		}
	}
	return true
}
