package envoyrules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// write returns the rules as YAML, of which quoted text is JSON's.
func (c *converter) write() []byte {
	var b bytes.Buffer
	if len(c.rules) == 0 {
		return []byte("rules: []\n")
	}
	fmt.Fprintf(&b, "attributes: [%s]\nrules:\n", list(c.attributes()))
	for _, r := range c.rules {
		fmt.Fprintf(&b, "  - name: %s\n    description: %s\n", quoted(r.name), quoted(r.description))
		b.WriteString("    match:\n")
		for _, m := range r.match {
			fmt.Fprintf(&b, "      %s: %s\n", quoted(m[0]), quoted(m[1]))
		}
		if len(r.unless) > 0 {
			b.WriteString("    unless:\n")
			for _, e := range r.unless {
				fmt.Fprintf(&b, "      - {%s: [%s]}\n", quoted(e.attribute), list(e.values))
			}
		}
		switch r.limit {
		case "unlimited", "block":
			fmt.Fprintf(&b, "    %s: true\n", r.limit)
		default:
			fmt.Fprintf(&b, "    key: [%s]\n    limits: [%s]\n", list(r.key), quoted(r.limit))
		}
		if r.never {
			b.WriteString("    cost: 2\n")
		}
		if r.shadow {
			b.WriteString("    shadow: true\n")
		}
	}
	return b.Bytes()
}

// attributes returns what the rules look at, which Envoy gives.
func (c *converter) attributes() []string {
	names := make(map[string]bool)
	for _, r := range c.rules {
		for _, m := range r.match {
			names[m[0]] = true
		}
		for _, name := range r.key {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func list(all []string) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = quoted(s)
	}
	return strings.Join(texts, ", ")
}

// plain is text that YAML takes for itself, but for the words that it does not.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// quoted returns text as YAML, without quotes where it needs none.
func quoted(text string) string {
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if plain.MatchString(text) {
			return text
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text can always be written
	return strings.TrimSuffix(b.String(), "\n")
}
