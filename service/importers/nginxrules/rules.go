package nginxrules

import (
	"slices"

	"github.com/stint-dev/stint/service/importers"
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
	c.beaten = make([][]bool, len(c.all))
	for i := range c.all {
		c.all[i].nth, c.beaten[i] = i, make([]bool, len(c.all))
	}
	for i := range c.all {
		for j := range c.all {
			c.beaten[i][j] = c.all[i].beats(&c.all[j])
		}
	}
	for _, p := range c.all {
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

func (c *converter) having(u use) (all []place) {
	for _, p := range c.all {
		if slices.Contains(p.uses, u) {
			all = append(all, p)
		}
	}
	return all
}

// without are the places that others are taken from, as they have not this use.
func (c *converter) without(u use, in []place) (all []place) {
	for _, p := range c.all {
		if !slices.Contains(p.uses, u) && slices.ContainsFunc(in, func(q place) bool { return c.beaten[p.nth][q.nth] }) {
			all = append(all, p)
		}
	}
	return all
}

// together takes the places that can be in one rule. One without some value of an attribute is
// alone, since a rule says that of all its places.
func (c *converter) together(u use, all []place) (in, apart []place) {
	for _, p := range all {
		tried := append(slices.Clone(in), p)
		out := c.without(u, tried)
		if len(in) > 0 && importers.Zeros(append(slices.Clone(in[0].when), p.when...)) != nil || slices.ContainsFunc(tried, func(q place) bool {
			return slices.ContainsFunc(out, func(o place) bool { return c.beaten[q.nth][o.nth] })
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
