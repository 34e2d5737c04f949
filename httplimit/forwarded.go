package httplimit

import (
	"net/netip"
	"strings"
)

// walkForwarded is walk for the Forwarded header of RFC 7239, from its last
// element on: what stands to the left of an element that cannot be read is not
// looked at, and does no harm. Elements are read by the grammar, since a quoted
// string may hold the commas and semicolons that a simple split would take for
// the proxies' own.
func (c *ClientIP) walkForwarded(lines []string, told note) (client netip.Addr, ok bool) {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			var element string
			element, rest, more = lastElement(rest)
			if hops++; hops > maxHops {
				told.add(element, "too many entries")
				return netip.Addr{}, false
			}
			if trimSpace(element) == "" { // RFC 9110, 5.6.1: no element
				continue
			}
			p := forwardedParser{rest: element}
			if !p.element() || p.rest != "" {
				told.add(element, "not by the grammar of RFC 7239")
				return netip.Addr{}, false
			}
			addr, good := parseAddr(p.node)
			if !good || strings.IndexByte(p.node, ' ') >= 0 { // unknown, _hidden or nothing
				told.add(p.node, "no address")
				return netip.Addr{}, false
			}
			if client, ok = addr, true; !told.of(c, p.node, addr) {
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

// A forwardedParser reads one Forwarded line, element by element.
type forwardedParser struct {
	rest string
	node string // of the element's "for", "" without one
	bad  bool   // the line is not what the grammar says
}

// element reads the next element and reports whether there was one.
func (p *forwardedParser) element() bool {
	for { // empty elements are no elements
		p.rest = trimSpace(p.rest)
		if p.rest == "" {
			return false
		}
		if p.rest[0] != ',' {
			break
		}
		p.rest = p.rest[1:]
	}
	p.node = ""
	seen := false
	for {
		if p.rest != "" && p.rest[0] != ';' && p.rest[0] != ',' { // pairs may be empty
			name, value := p.pair()
			if p.bad {
				return false
			}
			if strings.EqualFold(name, "for") {
				if seen {
					p.bad = true
					return false
				}
				p.node, seen = value, true
			}
		}
		p.rest = trimSpace(p.rest)
		switch {
		case p.rest == "":
			return true
		case p.rest[0] == ',':
			p.rest = p.rest[1:]
			return true
		case p.rest[0] != ';':
			p.bad = true
			return false
		}
		p.rest = trimSpace(p.rest[1:])
	}
}

// pair reads token "=" ( token / quoted-string ).
func (p *forwardedParser) pair() (name, value string) {
	name = p.token(false)
	if name == "" || p.rest == "" || p.rest[0] != '=' {
		p.bad = true
		return "", ""
	}
	if p.rest = p.rest[1:]; p.rest != "" && p.rest[0] == '"' {
		return name, p.quoted()
	}
	if value = p.token(true); value == "" {
		p.bad = true
	}
	return name, value
}

// token reads a token; with node, one that may hold the colon and brackets
// that many proxies do not quote.
func (p *forwardedParser) token(node bool) string {
	i := 0
	for i < len(p.rest) && (isTokenByte(p.rest[i]) || node && strings.IndexByte(":[]", p.rest[i]) >= 0) {
		i++
	}
	token := p.rest[:i]
	p.rest = p.rest[i:]
	return token
}

// quoted reads a quoted string. Only one with a backslash allocates.
func (p *forwardedParser) quoted() string {
	var plain []byte
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			value := p.rest[1:i]
			if plain != nil {
				value = string(plain)
			}
			p.rest = p.rest[i+1:]
			return value
		case c == '\\':
			if plain == nil {
				plain = append(make([]byte, 0, len(p.rest)), p.rest[1:i]...)
			}
			if i++; i < len(p.rest) {
				plain = append(plain, p.rest[i])
			}
		case c < ' ' && c != '\t' || c == 0x7f:
			p.bad = true
			return ""
		case plain != nil:
			plain = append(plain, c)
		}
	}
	p.bad = true
	return ""
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
