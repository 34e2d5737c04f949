package caddylimit

import (
	"fmt"
	"strings"
)

// plainPlaceholders are the placeholders that correspond to attributes of rules. Rules see a path
// and a host in one spelling, whatever Caddy's matchers accept as equal.
var plainPlaceholders = map[string]string{
	"http.vars.client_ip":   "ip",
	"http.request.method":   "method",
	"http.request.host":     "host",
	"http.request.uri.path": "path",
}

// namedPlaceholders are the beginnings of placeholders that a client may send several times, or in
// another spelling. Caddy joins them, or accepts any spelling, and servers behind use one. Read as
// attributes, an ambiguous request is refused.
var namedPlaceholders = []struct{ placeholder, attribute string }{
	{"http.request.header.", "header."},
	{"http.request.cookie.", "cookie."},
	{"http.request.uri.query.", "query."},
}

// attributeOf returns the attribute that corresponds to a placeholder, given without braces.
func attributeOf(placeholder string) (attribute string, ok bool) {
	if attribute, ok = plainPlaceholders[placeholder]; ok {
		return attribute, true
	}
	for _, one := range namedPlaceholders {
		if name, ok := strings.CutPrefix(placeholder, one.placeholder); ok && name != "" {
			return one.attribute + name, true
		}
	}
	return "", false
}

// attributeOfPart returns the attribute that a text of a key is: a placeholder of an attribute and
// nothing else. Other text around that placeholder is an error.
func attributeOfPart(part string) (attribute string, ok bool, err error) {
	if inside, found := strings.CutPrefix(part, "{"); found {
		if inside, found = strings.CutSuffix(inside, "}"); found && !strings.ContainsAny(inside, "{}") {
			attribute, ok = attributeOf(inside)
			return attribute, ok, nil
		}
	}
	for _, rest, more := strings.Cut(part, "{"); more; _, rest, more = strings.Cut(rest, "{") {
		placeholder, _, _ := strings.Cut(rest, "}")
		if _, is := attributeOf(placeholder); is {
			return "", false, fmt.Errorf("text around {%s}: several parts make one key, so make it a part of its own", placeholder)
		}
	}
	return "", false, nil
}
