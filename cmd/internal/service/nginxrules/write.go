package nginxrules

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A rule is one use of a zone, in all its places: these share its counters.
type rule struct {
	use
	in, out []place
}

// rules gathers the places of each use. What a location takes from those around
// it is left out; where a place lies within what is left out, it is a rule of its
// own.
func (c *converter) rules() (all []rule) {
	var uses []use
	for _, p := range c.places {
		for _, u := range p.uses {
			if !slices.Contains(uses, u) {
				uses = append(uses, u)
			}
		}
	}
	seen := make(map[string]bool)
	for _, u := range uses {
		for apart := c.having(u); len(apart) > 0; {
			r := rule{use: u}
			r.in, apart = c.together(u, apart)
			r.out = c.without(u, r.in)
			if seen[u.zone] {
				c.note(r.in[0].at, "the zone %s is counted apart here: there, all its places share a count", u.zone)
			}
			seen[u.zone] = true
			all = append(all, r)
		}
	}
	return all
}

// others are the names that servers have, for those that have none: nginx takes
// these where no name fits.
func (c *converter) others() (all []string) {
	for _, p := range c.places {
		for _, name := range p.hosts {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

func (c *converter) having(u use) (all []place) {
	for _, p := range c.places {
		if slices.Contains(p.uses, u) {
			all = append(all, p)
		}
	}
	return all
}

// without are the places that others are taken from, as they have not this use.
func (c *converter) without(u use, in []place) (all []place) {
	for _, p := range c.places {
		if !slices.Contains(p.uses, u) && slices.ContainsFunc(in, func(q place) bool { return p.beats(&q) }) {
			all = append(all, p)
		}
	}
	return all
}

// together takes the places that can be in one rule.
func (c *converter) together(u use, all []place) (in, apart []place) {
	for _, p := range all {
		tried := append(slices.Clone(in), p)
		out := c.without(u, tried)
		if len(in) > 0 && c.hosts > 1 && (len(in[0].hosts) == 0) != (len(p.hosts) == 0) { // "unless" is of all
			apart = append(apart, p)
			continue
		}
		if slices.ContainsFunc(tried, func(q place) bool {
			return slices.ContainsFunc(out, func(o place) bool { return q.beats(&o) })
		}) {
			apart = append(apart, p)
			continue
		}
		in = tried
	}
	if len(in) == 0 {
		return all[:1], all[1:]
	}
	return in, apart
}

// beats reports whether nginx takes p, of two places that both fit a path.
func (p *place) beats(q *place) bool {
	if p.server != q.server {
		return false
	}
	switch {
	case p.kind == "~":
		return q.kind == ""
	case q.kind == "~":
		return p.kind != "" // after = and ^~ nginx does not look at expressions
	case q.kind == "=":
		return false
	case p.kind == "=":
		return strings.HasPrefix(p.path, q.path)
	}
	return len(p.path) > len(q.path) && strings.HasPrefix(p.path, q.path)
}

// unnamed is what names of rules do not have.
var unnamed = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// write returns the rules as YAML.
func (c *converter) write() []byte {
	all := c.rules()
	if len(all) == 0 {
		return []byte("rules: []\n")
	}
	var b bytes.Buffer
	b.WriteString("rules:\n")
	names := make(map[string]int)
	for _, r := range all {
		z := c.zones[r.zone]
		name := unnamed.ReplaceAllString(r.zone, "-")
		if names[name]++; names[name] > 1 {
			name = fmt.Sprintf("%s-%d", name, names[name])
		}
		fmt.Fprintf(&b, "  - name: %s\n", quoted(name))
		if c.hosts > 1 && len(r.in[0].hosts) == 0 {
			if names := c.others(); len(names) > 0 {
				r.out = append(r.out, place{hosts: names, globs: []string{"/**"}})
			}
		}
		c.conditions(&b, "match", r.in, len(r.out) == 0 && c.everywhere(r.in))
		c.conditions(&b, "unless", r.out, len(r.out) == 0)
		fmt.Fprintf(&b, "    key: [%s]\n", strings.Join(z.key, ", "))
		if slices.Contains(z.key, "ip") {
			b.WriteString("    ipv6_prefix: 128\n")
		}
		if z.alone {
			b.WriteString("    on_missing: skip\n")
		}
		fmt.Fprintf(&b, "    limits: [%s]\n", quoted(r.limit))
		if r.dry {
			b.WriteString("    shadow: true\n")
		}
	}
	return b.Bytes()
}

// everywhere reports whether places are all that there is.
func (c *converter) everywhere(in []place) bool {
	servers := make(map[int]bool)
	for _, p := range in {
		if p.path == "/" && p.kind == "" {
			servers[p.server] = true
		}
	}
	return len(servers) == c.hosts
}

// conditions writes any of which must hold.
func (c *converter) conditions(b *bytes.Buffer, name string, places []place, none bool) {
	if none {
		return
	}
	fmt.Fprintf(b, "    %s:\n", name)
	for _, p := range places {
		var all []string
		if len(p.hosts) > 0 && c.hosts > 1 {
			all = append(all, "host: ["+list(p.hosts)+"]")
		}
		all = append(all, "path: ["+list(p.globs)+"]")
		fmt.Fprintf(b, "      - {%s}\n", strings.Join(all, ", "))
	}
}

func list(all []string) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = quoted(s)
	}
	return strings.Join(texts, ", ")
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
