package nginxrules

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// unnamed is what names of rules do not have.
var unnamed = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// write returns the rules as YAML.
func (c *converter) write() []byte {
	var b bytes.Buffer
	names := make(map[string]int)
	for _, r := range c.rules() {
		z := c.zones[r.zone]
		for i := range z.variants {
			c.rule(&b, names, &r, &z.variants[i])
		}
	}
	if b.Len() == 0 {
		return []byte("rules: []\n")
	}
	var head bytes.Buffer
	if c.fold {
		head.WriteString("ignore_path_case: true\n")
	}
	if c.real.from != nil && c.real.header != "" {
		fmt.Fprintf(&head, "trusted_proxies: [%s]\nclient_ip_header: %s\n", list(c.real.from), quoted(c.real.header))
	}
	head.WriteString("rules:\n")
	return append(head.Bytes(), b.Bytes()...)
}

// rule writes one variant of a rule.
func (c *converter) rule(b *bytes.Buffer, names map[string]int, r *rule, v *variant) {
	match := matches(r.in, v)
	var unless []string
	for i := range r.out {
		unless = append(unless, r.out[i].text(nil))
	}
	for _, u := range v.unless {
		unless = append(unless, textOf(u))
	}
	if len(match) == 0 || slices.Contains(unless, "{}") { // none of the places has such requests
		return
	}
	const most = 56 // of 64, for a number behind it
	name := unnamed.ReplaceAllString(r.zone, "-")
	if name = name[:min(len(name), most)]; name[0] == '-' {
		name = "_" + name[1:]
	}
	if names[name]++; names[name] > 1 {
		name = fmt.Sprintf("%s-%d", name, names[name])
	}
	fmt.Fprintf(b, "  - name: %s\n", quoted(name))
	if !slices.Contains(match, "{}") {
		conditions(b, "match", match)
	}
	conditions(b, "unless", unless)
	fmt.Fprintf(b, "    key: [%s]\n", strings.Join(v.key, ", "))
	if slices.Contains(v.key, "ip") {
		b.WriteString("    ipv6_prefix: 128\n")
	}
	if v.alone {
		b.WriteString("    on_missing: skip\n")
	}
	fmt.Fprintf(b, "    limits: [%s]\n", quoted(r.limit))
	if r.dry {
		b.WriteString("    shadow: true\n")
	}
}

// matches are the conditions of places, with those of a variant.
func matches(in []place, v *variant) (all []string) {
	when := v.when
	if when == nil {
		when = [][]cond{nil}
	}
	for i := range in {
		for _, w := range when {
			if allApart(in[i].conds(), w) || slices.ContainsFunc(in, func(q place) bool { return q.covers(&in[i]) }) {
				continue
			}
			if text := in[i].text(w); !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// covers reports whether q is part of what fits p by itself.
func (p *place) covers(q *place) bool {
	return p.server == q.server && p.when == nil && !slices.Equal(q.globs, p.globs) && !slices.ContainsFunc(q.globs, func(g string) bool {
		return !slices.ContainsFunc(p.globs, func(w string) bool {
			head, all := strings.CutSuffix(w, "**")
			return all && strings.HasPrefix(g, head) && !strings.Contains(head, "*")
		})
	})
}

// conds are the conditions of a place.
func (p *place) conds() (all []cond) {
	if hosts := p.server.named(); hosts != nil {
		all = append(all, cond{attribute: "host", values: hosts})
	}
	if !slices.Equal(p.globs, []string{"/**"}) {
		all = append(all, cond{attribute: "path", values: p.globs})
	}
	return merged(all, p.when)
}

// text is a place as conditions of a rule, with some more.
func (p *place) text(more []cond) string { return textOf(merged(p.conds(), more)) }

// merged adds conditions to others. Of two for one attribute, those that come later are
// for fewer requests.
func merged(all, more []cond) []cond {
	for _, w := range more {
		if both, ok := both(all, []cond{w}); ok {
			all = both
		} else if i := slices.IndexFunc(all, func(a cond) bool { return a.attribute == w.attribute }); i >= 0 {
			all[i] = w
		}
	}
	return all
}

func textOf(all []cond) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].text()
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

// conditions writes any of which must hold.
func conditions(b *bytes.Buffer, name string, all []string) {
	for i, text := range all {
		if i == 0 {
			fmt.Fprintf(b, "    %s:\n", name)
		}
		if !slices.Contains(all[:i], text) {
			fmt.Fprintf(b, "      - %s\n", text)
		}
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
