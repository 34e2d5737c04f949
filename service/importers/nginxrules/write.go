package nginxrules

import (
	"reflect"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

func (c *converter) write(f *importers.File) {
	c.letters()
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

func (c *converter) rule(f *importers.File, r *rule, v *variant) {
	one := importers.Rule{Match: matches(r.in, v), Key: v.key, IPv6Prefix: 128, Limits: []string{r.limit}, Shadow: r.dry}
	for _, m := range one.Match {
		one.Unless = append(one.Unless, importers.Zeros(m)...)
	}
	for i := range r.out {
		out, ok := c.freed(r, &r.out[i])
		if !ok {
			c.note(r.out[i].at, "the limit of the zone %s holds here, too: rules cannot say which requests these are exactly, or take these paths with a slash at the end, which it limits, for the same. Give the rule an unless if it is to free them", r.zone)
			continue
		}
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
	for _, less := range v.unless {
		if i := slices.IndexFunc(less, func(w importers.Cond) bool {
			return w.Attribute == "path" && !w.Spelled && spelled("path", strings.Join(w.Values, ""))
		}); c.fold && i >= 0 {
			c.lose(r.in[0].at, "the limit of the zone %s is NOT KEPT for upper and lower case of %s, which nginx tells apart: since a location has ~*, no rule does", r.zone, strings.Join(less[i].Values, " "))
		}
	}
	one.Unless = append(one.Unless, v.unless...)
	empty := func(all []importers.Cond) bool { return len(all) == 0 }
	if len(one.Match) == 0 || slices.ContainsFunc(one.Unless, empty) { // no place has requests of this variant
		return
	}
	if slices.ContainsFunc(one.Match, empty) {
		one.Match = nil
	}
	if v.alone {
		one.OnMissing = "skip"
	}
	for _, conds := range slices.Concat(one.Match, one.Unless) {
		for i := range conds { // the choice between Values and Less has been made
			conds[i].Less, conds[i].Wide = nil, false
		}
	}
	if one.Name = r.name(v); !slices.ContainsFunc(f.Rules, func(o importers.Rule) bool { return reflect.DeepEqual(o, one) }) {
		f.Rules = append(f.Rules, one)
	}
}

// freed returns the conditions of requests that a place of r.out takes from a rule. ok is false if
// rules cannot express them: then the rule limits these requests, too.
func (c *converter) freed(r *rule, p *place) (out []importers.Cond, ok bool) {
	hosts := p.server.over(r.in)
	if p.server.named() != nil && len(hosts) == 0 || slices.ContainsFunc(r.in, func(q place) bool {
		return c.beaten[p.nth][q.nth] && slices.ContainsFunc(c.all, func(o place) bool { // where o fits, o takes requests, and not p
			return c.beaten[o.nth][p.nth] && c.beaten[q.nth][o.nth]
		})
	}) {
		return nil, false
	}
	if out, ok = p.conds(hosts); !ok {
		return nil, false
	}
	less, ok := importers.Surely(out)
	ok = ok && !slices.ContainsFunc(r.in, func(q place) bool { return c.beaten[p.nth][q.nth] && importers.Twins(p.globs, p.exprs, q.exprs) })
	if ok || !c.covered(r, p) {
		return less, ok
	}
	return out, true
}

// covered reports whether the requests of a place have a limit of their own that is no looser than
// that of the rule, by its key or by a key that more requests share.
func (c *converter) covered(r *rule, p *place) bool {
	as := func(u use) bool {
		v := c.zones[u.zone].variants
		return u.dry == r.dry && importers.NoLooser(u.limit, r.limit) && len(v) == 1 && v[0].when == nil && v[0].unless == nil && !v[0].alone &&
			!slices.ContainsFunc(c.zones[r.zone].variants, func(o variant) bool {
				return slices.ContainsFunc(v[0].key, func(k string) bool { return !slices.Contains(o.key, k) })
			})
	}
	return slices.ContainsFunc(p.uses, as) && !slices.ContainsFunc(c.all, func(o place) bool {
		return c.beaten[o.nth][p.nth] && !slices.ContainsFunc(o.uses, as)
	})
}

// name returns the name of the rule for a variant: the zone, and what the directive says beside it.
// The rate is not in the name, so that a change of the rate keeps what clients have used.
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

// matches returns the conditions of places, combined with those of a variant.
func matches(in []place, v *variant) (all [][]importers.Cond) {
	when := v.when
	if when == nil {
		when = [][]importers.Cond{nil}
	}
	for i := range in {
		for _, w := range when {
			conds, _ := in[i].conds(in[i].server.named())
			if importers.AllApart(conds, w) || slices.ContainsFunc(in, func(q place) bool { return q.covers(&in[i]) && !in[i].covers(&q) }) {
				continue
			}
			with, _ := merged(conds, w)
			all = append(all, slices.DeleteFunc(with, func(w importers.Cond) bool { return w.Attribute == "path" && slices.Equal(w.Values, []string{"/**"}) }))
		}
	}
	return all
}

// covers reports whether the paths of q are a part of those of p, which has no other conditions.
func (p *place) covers(q *place) bool {
	return p.server == q.server && p.when == nil && !slices.Equal(q.globs, p.globs) && !slices.ContainsFunc(q.globs, func(g string) bool {
		return !slices.ContainsFunc(p.globs, func(w string) bool {
			head, all := strings.CutSuffix(w, "**")
			return all && strings.HasPrefix(g, head) && !strings.Contains(head, "*")
		})
	})
}

// conds returns the conditions of a place, for hosts of its server. ok is false if a rule cannot
// have all of them: then those that are returned take more requests.
func (p *place) conds(hosts []string) (all []importers.Cond, ok bool) {
	if hosts != nil {
		all = append(all, hosted(hosts))
	}
	if whole := []string{"/**"}; !slices.Equal(p.globs, whole) || !slices.Equal(p.less, whole) {
		all = append(all, importers.Cond{Attribute: "path", Values: p.globs, Less: p.less, Wide: !slices.Equal(p.globs, p.less)})
	}
	return merged(all, p.when)
}

// merged adds conditions to others. If a rule cannot have two of them, for one attribute, the later
// one stays, and ok is false.
func merged(all, more []importers.Cond) (_ []importers.Cond, ok bool) {
	ok = true
	for _, w := range more {
		if both, fits := importers.Both(all, []importers.Cond{w}); fits {
			all = both
		} else if i := slices.IndexFunc(all, func(a importers.Cond) bool { return a.Attribute == w.Attribute }); i >= 0 {
			all[i], ok = w, false
		}
	}
	return all, ok
}
