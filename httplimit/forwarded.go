package httplimit

import (
	"net/netip"
	"strings"
)

// walk returns the first address from the right that is not trusted, else the leftmost. It
// returns false for a list that is empty or too long, or has an entry that is no address, or
// with forwarded does not follow RFC 7239. Entries to the left of the client are not looked
// at.
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
			if trimSpace(entry) == "" { // an empty element, which does not count (RFC 9110, 5.6.1)
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
			if !good || forwarded && strings.IndexByte(entry, ' ') >= 0 { // such as unknown or _hidden
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

// lastElement cuts off the text behind the last comma that is not in quotes, reading from the
// right. A quote with a backslash before it is within quotes.
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

// escaped reports whether text escapes the byte that follows it: it ends in an odd number of
// backslashes.
func escaped(text string) bool {
	plain := strings.TrimRight(text, "\\")
	return (len(text)-len(plain))%2 == 1
}

// cutUnquoted is [strings.Cut] at the first sep that is not in quotes. A backslash escapes
// the next byte in a string, but not in a display string, %"…" of RFC 9651.
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

// forwardedFor returns the for of an element of Forwarded, "" if it has none; false if the
// element does not follow the grammar. A simple split would not do: a client could write the
// commas and semicolons that the proxies write, in a quoted string.
func forwardedFor(element string) (node string, ok bool) {
	seen := false
	for rest, more := element, true; more; {
		var pair string
		if pair, rest, more = cutUnquoted(rest, ';'); trimSpace(pair) == "" {
			continue // an empty pair is allowed
		}
		name, value, equals := strings.Cut(trimSpace(pair), "=")
		if strings.HasPrefix(value, `"`) {
			value, ok = unquote(value)
		} else {
			ok = value != "" && isToken(value, ":[]") // many proxies do not quote addresses with these bytes
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

// unquote returns the value of text, which must be one quoted string. It allocates only if
// there is a backslash in it.
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

var tokenBytes = func() (is [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		is[c] = true
	}
	return is
}()

// isToken reports whether a text has only bytes of an HTTP token, or of also.
func isToken(text, also string) bool {
	for i := range len(text) {
		if c := text[i]; !tokenBytes[c] && strings.IndexByte(also, c) < 0 {
			return false
		}
	}
	return true
}
