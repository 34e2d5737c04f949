package match

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

const maxPath = 8192 // bytes; servers refuse longer request lines

// CleanPath returns the path that rules are matched against: decoded once,
// without empty and dot segments and without a slash at the end; what follows ?
// is cut off. A reason is returned for a path that servers read in
// different ways: an encoded or double-encoded separator, a backslash, a
// semicolon, control characters, dot segments that appear by decoding, what is
// not UTF-8. docs/RULES.md has the table.
func CleanPath(raw string) (clean, reason string) {
	if i := strings.IndexByte(raw, '?'); i >= 0 {
		raw = raw[:i]
	}
	switch {
	case raw == "" || raw == "/" || raw == "*":
		return "/", "" // OPTIONS * is about the whole server
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

// decodePath decodes each segment once, and refuses what would read otherwise
// had it been decoded earlier, later or again.
func decodePath(raw string) (path, reason string) {
	b := make([]byte, 0, len(raw))
	start, escaped := 0, false // of the segment in b; whether it had an escape
	for i := 0; i <= len(raw); i++ {
		if i == len(raw) || raw[i] == '/' {
			if seg := string(b[start:]); escaped && (seg == "." || seg == "..") {
				return "", "encoded dot segment"
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
			return "", "% without two hexadecimal digits"
		}
		c = unhex(raw[i+1])<<4 | unhex(raw[i+2])
		i += 2
		escaped = true
		switch {
		case c == '/' || c == '\\':
			return "", "encoded slash or backslash"
		case c < ' ' || c == 0x7f:
			return "", "encoded control character"
		case c == ';':
			return "", "encoded semicolon"
		}
		b = append(b, c)
	}
	for i := range b {
		if b[i] == '%' && i+2 < len(b) && isHex(b[i+1]) && isHex(b[i+2]) {
			return "", "encoded twice"
		}
	}
	if !utf8.Valid(b) {
		return "", "not UTF-8"
	}
	for _, c := range string(b) {
		if c >= 0x80 && c < 0xa0 || c == 0x2028 || c == 0x2029 {
			return "", "encoded control character"
		}
	}
	return string(b), ""
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

// joinPath resolves empty and dot segments, as RFC 3986, section 5.2.4, has it.
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

// A pathPattern is segments to match a clean path with.
type pathPattern struct {
	segments []segment
}

type segment struct {
	glob glob // of a literal, one part
	any  bool // * or {name}: one segment, whatever it is
	deep bool // ** or {name...}: any number of segments
}

func (s *segment) match(seg string) bool { return s.any || s.glob.match(seg) }

// match reports whether the whole path fits. Only the last ** met ever needs to
// take more: what came before it has been matched as early as possible.
func (p *pathPattern) match(path string) bool {
	rest, again := path[1:], ""
	i, star := 0, -1
	for {
		if i < len(p.segments) && p.segments[i].deep {
			star, again = i, rest
			i++
			continue
		}
		if rest == "" {
			break
		}
		seg, next := cutSegment(rest)
		switch {
		case i < len(p.segments) && p.segments[i].match(seg):
			i, rest = i+1, next
		case star >= 0:
			_, again = cutSegment(again)
			i, rest = star+1, again
		default:
			return false
		}
	}
	return i == len(p.segments)
}

// parsePath reads a path pattern; reason and hint are empty if it is good.
func parsePath(text string) (p pathPattern, reason, hint string) {
	if !strings.HasPrefix(text, "/") {
		return p, "a path pattern must begin with a slash", "such as /api/**, /users/{id} or /**"
	}
	if i := strings.IndexAny(text, "%\\;?#"); i >= 0 {
		return p, "a path pattern cannot hold " + text[i:i+1],
			"patterns are written decoded, and match the path alone: a query is matched as query.NAME"
	}
	for rest := strings.TrimSuffix(text[1:], "/"); rest != ""; {
		var seg string
		seg, rest = cutSegment(rest)
		name, braces := strings.CutPrefix(seg, "{")
		name, closed := strings.CutSuffix(name, "}")
		switch {
		case seg == "" || seg == "." || seg == "..":
			return p, "a path pattern cannot have empty or dot segments", "paths are cleaned before they are matched"
		case seg == "**", braces && closed && strings.HasSuffix(name, "..."):
			p.segments = append(p.segments, segment{deep: true})
		case seg == "*", braces && closed && !strings.ContainsAny(name, "{}"):
			p.segments = append(p.segments, segment{any: true})
		case strings.ContainsAny(seg, "{}"):
			return p, "braces in a path pattern stand for a whole segment", "such as /users/{id} or /files/*.png"
		case strings.Contains(seg, "**"):
			return p, "** in a path pattern stands for whole segments", "such as /api/** or /**/edit"
		default:
			p.segments = append(p.segments, segment{glob: strings.Split(seg, "*")})
		}
	}
	return p, "", ""
}
