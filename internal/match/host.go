package match

import (
	"net/netip"
	"strings"
)

// CleanHost returns the host that rules are matched against: in lower case,
// without the port, brackets and the dot at the end. A reason is returned for
// what is no name and no address, such as a name with two
// ports or an empty label: servers read those in different ways. An empty host
// is none, and no fault.
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

// isPort reports whether text is a port, or the empty one that may follow a
// colon.
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

// isHostPattern reports whether text can fit a clean host, with stars in it.
func isHostPattern(text string) bool {
	text = strings.ReplaceAll(text, "*", "x")
	clean, reason := CleanHost(text)
	return reason == "" && text != "" && strings.EqualFold(text, clean)
}
