package envoyrules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// write returns the rules as YAML, of which quoted text is JSON's.
func (c *converter) write() []byte {
	var b bytes.Buffer
	b.WriteString("rules:\n")
	if len(c.rules) == 0 {
		return []byte("rules: []\n")
	}
	for _, r := range c.rules {
		fmt.Fprintf(&b, "  - name: %s\n    description: %s\n", quoted(r.name), quoted(r.description))
		fmt.Fprintf(&b, "    match: {%s}\n", pairs(r.match))
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
		if r.shadow {
			b.WriteString("    shadow: true\n")
		}
	}
	return b.Bytes()
}

func pairs(all [][2]string) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = quoted(p[0]) + ": " + quoted(p[1])
	}
	return strings.Join(texts, ", ")
}

func list(all []string) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = quoted(s)
	}
	return strings.Join(texts, ", ")
}

// quoted returns text as YAML, without quotes where it needs none.
func quoted(text string) string {
	plain := text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain {
		return text
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text can always be written
	return strings.TrimSuffix(b.String(), "\n")
}
