package httplimit

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
)

// Ambiguous finds requests in which servers read differently what rules look at: a header,
// cookie or query parameter that comes twice, a header that is also spelled with underscores
// or that Connection takes away, a cookie in quotes, a path that routers take for another
// one; or a header from which servers take another method, host or path, such as
// X-Forwarded-Host. The rules might go by one reading and the handler by the other, so that a
// client could vary the first and never be limited. Ambiguous ignores what no rule, or only
// rules in shadow, look at. The exception is a blank or a control character in the target,
// which no server should get. It does not judge the values of headers: the policy does that
// for all its callers.
//
// The zero value is ready. An Ambiguous may be used from many goroutines at once. Price:
// nothing where rules look at no header, cookie or parameter; otherwise tens of nanoseconds,
// without an allocation for an ordinary request.
type Ambiguous struct{ known atomic.Pointer[looked] }

// Check returns a [policy.RequestError] if servers may read the header or the query of a
// request differently, and nil for all other requests.
func (a *Ambiguous) Check(rules *policy.Rules, r *http.Request) error {
	return a.of(rules).check(r)
}

func (l *looked) check(r *http.Request) error {
	header, query := r.Header, r.URL.RawQuery
	if hasBlank(query) {
		return &policy.RequestError{Attribute: "query", Reason: blankReason}
	}
	if l.header {
		if attribute, reason := l.headerFault(r); reason != "" {
			return &policy.RequestError{Attribute: attribute, Reason: reason}
		}
	}
	if len(l.cookies) > 0 {
		if attribute, reason := l.cookieFault(header["Cookie"]); reason != "" {
			return &policy.RequestError{Attribute: attribute, Reason: reason}
		}
	}
	if len(l.queries) > 0 && query != "" {
		if attribute, reason := l.queryFault(header["Content-Type"], query); reason != "" {
			return &policy.RequestError{Attribute: attribute, Reason: reason}
		}
	}
	return nil
}

// CheckPath returns a [policy.RequestError] if rules look at the path and not all routers
// take it for the one that [policy.CleanPath] makes of it. That is so if the path has empty
// or dot segments, such as /files/../login, which some routers resolve and others hand to a
// handler of /files/*; or if it encodes a letter, digit or one of -._~, which some routers
// decode before they look for the handler and others do not. A blank or a control character
// is an error even if no rule looks at the path. raw is the path as it was sent; what follows
// ? is cut off. Do not call CheckPath where the handler gets the clean path instead of this
// one.
func (a *Ambiguous) CheckPath(rules *policy.Rules, raw string) error {
	return a.of(rules).checkPath(raw)
}

func (l *looked) checkPath(raw string) error {
	raw, _, _ = strings.Cut(raw, "?")
	if hasBlank(raw) {
		return &policy.RequestError{Attribute: "path", Reason: blankReason}
	}
	if !l.path {
		return nil
	}
	if reason := pathFault(raw); reason != "" {
		return &policy.RequestError{Attribute: "path", Reason: reason}
	}
	return nil
}

// blankReason is why a target is refused that HTTP/2 can carry, but that would end at the
// blank in a request line of HTTP/1.1, which has the version behind it.
const blankReason = "a blank or a control character, which must be encoded"

func hasBlank(target string) bool {
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			return true
		}
	}
	return false
}

// of returns what rules look at, remembered for the last rules.
func (a *Ambiguous) of(rules *policy.Rules) *looked {
	l := a.known.Load()
	if l == nil || l.rules != rules {
		l = lookedAt(rules)
		a.known.Store(l)
	}
	return l
}

// looked is what rules that are not in shadow look at.
type looked struct {
	rules            *policy.Rules
	path, method     bool
	host, target     bool              // target: any of path, method and host
	header           bool              // anything that a header may say
	headers          []string          // as http.Header keeps them
	folded           map[string]string // from a folded header name to the name in the rules
	foreign          bool              // some header name has other bytes than letters, digits and hyphens
	cookies, queries []pairName
	bodies           []string // JSON pointers
}

func lookedAt(rules *policy.Rules) *looked {
	l := &looked{rules: rules, folded: make(map[string]string)}
	for _, name := range rules.Enforced() {
		a := request.Of(name)
		if line, ok := a.Line(); ok {
			l.headers = append(l.headers, http.CanonicalHeaderKey(line))
			l.folded[fold(line)] = line
			l.foreign = l.foreign || hasForeign(line)
		}
		switch a.Kind {
		case request.Path:
			l.path = true
		case request.Method:
			l.method = true
		case request.Host, request.HostHeader:
			l.host = true
		case request.Cookie:
			l.cookies = append(l.cookies, newPairName(a.Rest()))
		case request.Query:
			l.queries = append(l.queries, newPairName(a.Rest()))
		case request.Body:
			l.bodies = append(l.bodies, a.Rest())
		}
	}
	l.target = l.method || l.host || l.path
	l.header = l.target || len(l.headers)+len(l.cookies) > 0
	return l
}

// pathFault finds, in a path that CleanPath accepts, what routers still read differently.
func pathFault(raw string) (reason string) {
	if raw == "" {
		return ""
	}
	if raw[0] != '/' {
		return "must begin with a slash"
	}
	for rest, more := raw[1:], true; more; {
		var segment string
		switch segment, rest, more = strings.Cut(rest, "/"); {
		case segment == "" && more:
			return "an empty segment, which some servers leave out"
		case segment == "." || segment == "..":
			return "a dot segment, which some servers resolve"
		case strings.IndexByte(segment, '%') >= 0 && encodesUnreserved(segment):
			return "an encoding that no program writes"
		}
	}
	return ""
}

func encodesUnreserved(segment string) bool {
	for i := 0; i+2 < len(segment); i++ {
		if segment[i] != '%' {
			continue
		}
		if unreserved(segment[i+1], segment[i+2]) {
			return true
		}
		i += 2
	}
	return false
}

// unreserved reports whether %xy encodes a character that needs no encoding (RFC 3986, 2.3).
func unreserved(x, y byte) bool {
	c, err := url.PathUnescape(string([]byte{'%', x, y}))
	return err == nil && (!hasForeign(c) || strings.Contains("._~", c))
}

// headerFault finds a header of the rules that comes twice, in another spelling, or that
// Connection names; and a header that names another method, host or path.
func (l *looked) headerFault(r *http.Request) (attribute, reason string) {
	header := r.Header
	for _, name := range l.headers {
		switch lines := header[name]; {
		case len(lines) > 1:
			return "header." + strings.ToLower(name), "it comes more than once"
		case len(lines) == 1 && strings.HasSuffix(name, "-Bin"):
			if _, err := base64.RawStdEncoding.Strict().DecodeString(lines[0]); err != nil {
				return "header." + strings.ToLower(name), "want bytes in base64, without padding, as gRPC has them"
			}
		}
	}
	if attribute, reason = l.nameFault(r); reason != "" {
		return attribute, reason
	}
	if len(l.headers) == 0 && len(l.cookies) == 0 {
		return "", ""
	}
	for _, line := range header["Connection"] {
		for rest, more := line, true; more; {
			var option string
			option, rest, more = strings.Cut(rest, ",")
			option = fold(trimSpace(option))
			if hopByHop[option] {
				continue
			}
			if name, ok := l.folded[option]; ok {
				return "header." + name, "Connection names it, so that servers behind do not see it"
			}
			if option == "cookie" && len(l.cookies) > 0 {
				return "cookie." + l.cookies[0].name, "Connection names Cookie, so that servers behind do not see it"
			}
		}
	}
	return "", ""
}

// nameFault finds another spelling of a header in the rules, and a header that names another
// method, host or path.
func (l *looked) nameFault(r *http.Request) (attribute, reason string) {
	if len(l.headers) == 0 && !l.target {
		return "", ""
	}
	for sent, lines := range r.Header {
		if len(l.headers) == 0 && !request.MayOverride(sent) || sent == "X-Forwarded-Server" && r.Header["X-Forwarded-Host"] != nil {
			continue // Traefik sends both, and servers prefer X-Forwarded-Host
		}
		name := sent
		if l.foreign || hasForeign(sent) {
			folded := fold(sent)
			if name, ok := l.folded[folded]; ok && !strings.EqualFold(name, sent) {
				return "header." + name, respelled
			}
			name = http.CanonicalHeaderKey(folded)
		}
		if l.target && request.MayOverride(name) {
			if attribute, reason = l.overridden(r, name, lines); reason != "" {
				return attribute, reason
			}
		}
	}
	return "", ""
}

// hopByHop are the names that may stand in Connection.
var hopByHop = map[string]bool{
	"close": true, "keep-alive": true, "upgrade": true, "te": true, "trailer": true, "proxy-connection": true, "http2-settings": true,
}

// fold brings to one form the spellings of a header name that some servers make one variable
// of: they differ in case, and in bytes that are neither letters nor digits.
func fold(name string) string {
	return strings.Map(func(c rune) rune {
		if 'A' <= c && c <= 'Z' {
			return c + 'a' - 'A'
		}
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			return c
		}
		return '-'
	}, name)
}

func hasForeign(name string) bool {
	for i := range len(name) {
		c := name[i]
		if letter := 'a' <= c|0x20 && c|0x20 <= 'z'; !letter && c != '-' && (c < '0' || c > '9') {
			return true
		}
	}
	return false
}

// mostPairs is how many cookies or parameters a request may have if rules look at one.
// Servers ignore further ones beyond bounds of their own: Go 3,000 and 10,000, PHP and Node's
// qs 1,000.
const mostPairs = 1000

// queryFault finds a parameter of the rules that comes twice, in another spelling, or in an
// encoding that only some servers decode; and separators that only some servers know. The
// charset in Content-Type matters too: Django decodes the query by it, even without a body.
func (l *looked) queryFault(kinds []string, query string) (attribute, reason string) {
	if strings.ContainsAny(query, ";#") {
		return "query." + l.queries[0].name, "a semicolon or # in the query, which some servers take for a separator"
	}
	for i := range len(query) {
		if query[i] >= utf8.RuneSelf { // such as a no-break space, where Python ends the target
			return "query." + l.queries[0].name, "what is not ASCII in the query, which must be encoded"
		}
	}
	for _, kind := range kinds {
		if beyond := encodesBeyond(query); otherCharset(kind, beyond) || beyond && strings.Contains(strings.ToLower(kind), "us-ascii") {
			return "query." + l.queries[0].name, "Content-Type says another charset than UTF-8, by which some servers decode the query"
		}
	}
	if strings.Count(query, "&") >= mostPairs {
		return "query." + l.queries[0].name, "more than 1000 parameters"
	}
	for _, n := range l.queries {
		if reason := n.parameterFault(query); reason != "" {
			return "query." + n.name, reason
		}
	}
	return "", ""
}

func encodesBeyond(query string) bool {
	for i := 1; i < len(query); i++ {
		if high := unhex(query[i]); query[i-1] == '%' && 8 <= high && high < 16 {
			return true
		}
	}
	return false
}

func (n *pairName) parameterFault(query string) (reason string) {
	found := 0
	for rest, more := query, true; more; {
		var pair string
		pair, rest, more = strings.Cut(rest, "&")
		if _, behind, second := strings.Cut(pair, "?"); second && n.behindMark(behind) {
			return "it comes behind a ?, where HAProxy begins a parameter: a ? must be encoded"
		}
		sent, value, _ := strings.Cut(pair, "=")
		switch {
		case sent == n.name || strings.ContainsAny(sent, "%+") && n.encodedAs(sent):
			found++
		case n.respelled(sent):
			return respelled
		default:
			continue
		}
		plain, err := url.QueryUnescape(value)
		if strings.IndexByte(value, '?') >= 0 {
			return "a ? in it, where HAProxy ends a parameter, must be encoded"
		}
		if err != nil || !utf8.ValidString(plain) || strings.IndexByte(plain, 0) >= 0 {
			return "it is not UTF-8 without a NUL, encoded by % and two hexadecimal digits"
		}
	}
	if found > 1 {
		return "it comes more than once"
	}
	return ""
}

// behindMark reports whether the parameter stands in the text behind a ?.
func (n *pairName) behindMark(rest string) bool {
	for one := range strings.SplitSeq(rest, "?") {
		if sent, _, _ := strings.Cut(one, "="); sent == n.name || n.encodedAs(sent) || n.respelled(sent) {
			return true
		}
	}
	return false
}

// cookieFault finds a cookie of the rules that comes twice, or in a form that only some
// servers read.
func (l *looked) cookieFault(lines []string) (attribute, reason string) {
	switch {
	case len(lines) == 0:
		return "", ""
	case len(lines) > 1:
		return "cookie." + l.cookies[0].name, "the header Cookie comes more than once"
	case strings.Count(lines[0], ";") >= mostPairs:
		return "cookie." + l.cookies[0].name, "more than 1000 cookies"
	}
	for _, n := range l.cookies {
		name := n.name
		if n.respelledIn(lines[0]) {
			return "cookie." + name, respelled
		}
		mentions := mentions(lines[0], name)
		if mentions == 0 {
			continue
		}
		plain, reason := plainCookies(lines[0], name)
		switch {
		case reason != "":
			return "cookie." + name, reason
		case plain > 1:
			return "cookie." + name, "it comes more than once"
		case plain != mentions:
			return "cookie." + name, "it comes where some servers read a cookie and some do not"
		}
	}
	return "", ""
}

// mentions counts the places where a lenient server may read a cookie of this name: at the
// beginning of the line, or behind a semicolon, a comma, a blank (any of Unicode) or a quote;
// with blanks before the equals sign or without a value.
func mentions(line, name string) (n int) {
	for from := 0; ; {
		i := strings.Index(line[from:], name)
		if i < 0 {
			return n
		}
		begin, end := from+i, from+i+len(name)
		from = begin + 1
		if begin > 0 && !isBlank(line[begin-1]) && strings.IndexByte(";,\"'", line[begin-1]) < 0 {
			continue
		}
		for end < len(line) && isBlank(line[end]) {
			end++
		}
		if end == len(line) || strings.IndexByte("=;,", line[end]) >= 0 {
			n++
		}
	}
}

// plainCookies counts the cookies of a name that every server reads alike. If it meets one
// that they read differently, it returns the reason.
func plainCookies(line, name string) (n int, reason string) {
	for rest, more := line, true; more; {
		var pair string
		pair, rest, more = strings.Cut(rest, ";")
		value, ok := strings.CutPrefix(strings.TrimLeft(pair, " "), name+"=")
		if !ok {
			if _, value, _ := strings.Cut(pair, "="); n == 0 && opensQuote(trimSpace(value)) {
				return 0, "a quote before it that is not closed"
			}
			continue
		}
		n++
		if begin, ok := strings.CutPrefix(value, "j"); ok && (strings.HasPrefix(begin, ":") || strings.HasPrefix(begin, "%3A") || strings.HasPrefix(begin, "%3a")) {
			return n, "its value begins with j:, behind which some servers read JSON"
		}
		for i := range len(value) {
			c := value[i]
			switch {
			case c <= ' ' || c >= 0x7f || strings.IndexByte("\",\\", c) >= 0:
				return n, "its value has a quote, a comma, a backslash, a blank or what is not ASCII"
			case c == '%' && i+2 < len(value) && (unreserved(value[i+1], value[i+2]) || value[i+1:i+3] == "00"):
				return n, "an encoding that no program writes"
			}
		}
	}
	return n, ""
}

// opensQuote reports whether a value begins with a quote that may end in
// another cookie.
func opensQuote(value string) bool {
	if value == "" || value[0] != '"' {
		return false
	}
	return len(value) == 1 || value[len(value)-1] != '"' || strings.IndexByte(value, '\\') >= 0
}
