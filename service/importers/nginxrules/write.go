package nginxrules

import (
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// write adds the rules to a file.
func (c *converter) write(f *importers.File) {
	f.FoldCase = f.FoldCase || c.fold
	for _, r := range c.rules() {
		z := c.zones[r.zone]
		for i := range z.variants {
			c.rule(f, &r, &z.variants[i])
		}
	}
	if c.real.from != nil && c.real.header != "" {
		f.TrustedProxies, f.ClientIPHeader = c.real.from, c.real.header
	}
}

// rule adds one variant of a rule.
func (c *converter) rule(f *importers.File, r *rule, v *variant) {
	one := importers.Rule{Match: matches(r.in, v), Key: v.key, IPv6Prefix: 128, Limits: []string{r.limit}, Shadow: r.dry}
	for _, m := range one.Match {
		one.Unless = append(one.Unless, importers.Zeros(m)...)
	}
	for i := range r.out {
		out := r.out[i].conds()
		if c.fold && r.out[i].in.kind != "~*" && spelled("path", strings.Join(r.out[i].globs, "")) {
			c.lose(r.out[i].at, "the limit around %s is NOT KEPT for upper and lower case of these paths, which nginx tells apart: since a location has ~*, no rule does", strings.Join(r.out[i].globs, " "))
		}
		zeros := importers.Zeros(out)
		if len(zeros) == 0 {
			one.Unless = append(one.Unless, out)
			continue
		}
		for _, zero := range zeros {
			one.Overrides = append(one.Overrides, importers.Override{When: zero})
		}
		one.Overrides = append(one.Overrides, importers.Override{When: out, Lifted: true})
	}
	one.Unless = append(one.Unless, v.unless...)
	empty := func(all []importers.Cond) bool { return len(all) == 0 }
	if len(one.Match) == 0 || slices.ContainsFunc(one.Unless, empty) { // none of the places has such requests
		return
	}
	if slices.ContainsFunc(one.Match, empty) {
		one.Match = nil
	}
	if v.alone {
		one.OnMissing = "skip"
	}
	one.Name = r.name(v)
	f.Rules = append(f.Rules, one)
}

// name is what a variant of a rule is called: by its zone, and by what its directive says
// beside that. The rate is not in it: who changes that keeps what clients have used.
func (r *rule) name(v *variant) string {
	name := r.zone
	if _, burst, ok := strings.Cut(r.limit, " burst "); ok && burst != "1" {
		name += "-burst-" + strings.ReplaceAll(burst, " ", "-")
	} else if n, ok := strings.CutSuffix(r.limit, " in flight"); ok {
		name += "-" + n
	}
	if r.dry {
		name += "-dry"
	}
	if v.when == nil {
		return name
	}
	identity := []string{v.text}
	for _, when := range v.when {
		identity = append(identity, importers.Text(when))
	}
	return importers.NameOf(name, identity...)
}

// matches are the conditions of places, with those of a variant.
func matches(in []place, v *variant) (all [][]importers.Cond) {
	when := v.when
	if when == nil {
		when = [][]importers.Cond{nil}
	}
	for i := range in {
		for _, w := range when {
			if importers.AllApart(in[i].conds(), w) || slices.ContainsFunc(in, func(q place) bool { return q.covers(&in[i]) }) {
				continue
			}
			all = append(all, in[i].conditions(w))
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
func (p *place) conds() (all []importers.Cond) {
	if hosts := p.server.named(); hosts != nil {
		all = append(all, importers.Cond{Attribute: "host", Values: hosts})
	}
	if !slices.Equal(p.globs, []string{"/**"}) {
		all = append(all, importers.Cond{Attribute: "path", Values: p.globs})
	}
	return merged(all, p.when)
}

// conditions are those of a place, with some more.
func (p *place) conditions(more []importers.Cond) []importers.Cond { return merged(p.conds(), more) }

// merged adds conditions to others. Of two for one attribute, those that come later are
// for fewer requests.
func merged(all, more []importers.Cond) []importers.Cond {
	for _, w := range more {
		if both, ok := importers.Both(all, []importers.Cond{w}); ok {
			all = both
		} else if i := slices.IndexFunc(all, func(a importers.Cond) bool { return a.Attribute == w.Attribute }); i >= 0 {
			all[i] = w
		}
	}
	return all
}
