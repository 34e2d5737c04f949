package httplimit

import (
	"net/netip"
	"strings"
)

// walk returns the first address from the right that is not trusted, else the
// leftmost. It reports false for a list that is empty, too long, or stopped: by what is
// no address, or, with forwarded, none by RFC 7239. What stands to the left of that is
// not looked at, and does no harm.
func (c *ClientIP) walk(lines []string, forwarded bool, told note) (client netip.Addr, ok bool) {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			var entry string
			if forwarded {
				entry, rest, more = lastElement(rest)
			} else if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, entry = rest[:comma], rest[comma+1:]
			} else {
				entry, more = rest, false
			}
			if hops++; hops > maxHops {
				told.add(entry, "too many entries")
				return netip.Addr{}, false
			}
			if trimSpace(entry) == "" { // RFC 9110, 5.6.1: no element
				continue
			}
			if forwarded {
				node, good := forwardedFor(entry)
				if !good {
					told.add(entry, "not by the grammar of RFC 7239")
					return netip.Addr{}, false
				}
				entry = node
			}
			addr, good := parseAddr(entry)
			if !good || forwarded && strings.IndexByte(entry, ' ') >= 0 { // unknown, _hidden or nothing
				told.add(entry, "no address")
				return netip.Addr{}, false
			}
			if client, ok = addr, true; !told.of(c, entry, addr) {
				return client, true
			}
		}
	}
	return client, ok
}

// lastElement cuts off what follows the last comma that is not in quotes, read
// from the right. A quote that has a backslash before it is within quotes.
func lastElement(line string) (element, rest string, more bool) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch c := line[i]; {
		case c == '"' && !escaped(line[:i]):
			quoted = !quoted
		case c == ',' && !quoted:
			return line[i+1:], line[:i], true
		}
	}
	return line, "", false
}

// escaped reports whether what follows text has a backslash of its own: text
// ends in an odd number of them.
func escaped(text string) bool {
	plain := strings.TrimRight(text, "\\")
	return (len(text)-len(plain))%2 == 1
}

// cutUnquoted is [strings.Cut] at the first sep that is not in quotes. A backslash escapes
// what follows in a string, but not in %"…", the display string of RFC 9651.
func cutUnquoted(text string, sep byte) (before, after string, found bool) {
	quoted, display := false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted && !display:
			i++
		case c == '"':
			quoted, display = !quoted, i > 0 && text[i-1] == '%'
		case c == sep && !quoted:
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

// forwardedFor returns the node that an element of Forwarded is for, "" without one. It
// is read by the grammar, since a quoted string may hold the commas and semicolons that a
// simple split would take for the proxies' own. It reports false for what is none.
func forwardedFor(element string) (node string, ok bool) {
	seen := false
	for rest, more := element, true; more; {
		var pair string
		if pair, rest, more = cutUnquoted(rest, ';'); trimSpace(pair) == "" {
			continue // pairs may be empty
		}
		name, value, equals := strings.Cut(trimSpace(pair), "=")
		if strings.HasPrefix(value, `"`) {
			value, ok = unquote(value)
		} else {
			ok = value != "" && isToken(value, ":[]") // which many proxies do not quote
		}
		if !equals || !ok || name == "" || !isToken(name, "") {
			return "", false
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return "", false
			}
			node, seen = value, true
		}
	}
	return node, true
}

// unquote reads a quoted string, which is all of the text. Only one with a backslash
// allocates.
func unquote(text string) (value string, ok bool) {
	last := len(text) - 1
	if last < 1 || text[last] != '"' || escaped(text[:last]) {
		return "", false
	}
	value = text[1:last]
	if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return "", false
	}
	if strings.IndexByte(value, '\\') < 0 {
		return value, strings.IndexByte(value, '"') < 0
	}
	plain := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			return "", false
		case '\\':
			i++
		}
		plain = append(plain, value[i])
	}
	return string(plain), true
}

// tokenBytes are those of a token of HTTP.
var tokenBytes = func() (is [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		is[c] = true
	}
	return is
}()

// isToken reports whether a text has nothing but bytes of a token, or of also.
func isToken(text, also string) bool {
	for i := range len(text) {
		if c := text[i]; !tokenBytes[c] && strings.IndexByte(also, c) < 0 {
			return false
		}
	}
	return true
}
