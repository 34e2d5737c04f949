package nginxrules

import (
	"slices"

	"github.com/stint-dev/stint/service/importers"
)

// A rule is one use of a zone in several places, which share its counters.
type rule struct {
	use
	in, out []place // where it holds, and which places take requests from these
}

// rules gathers the places of each use. A rule leaves out the requests that places without
// the use take from its places. A place within what a rule leaves out is a rule of its own.
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

// without returns the places that take requests from those in in, and do not have the use.
func (c *converter) without(u use, in []place) (all []place) {
	for _, p := range c.all {
		if !slices.Contains(p.uses, u) && slices.ContainsFunc(in, func(q place) bool { return c.beaten[p.nth][q.nth] }) {
			all = append(all, p)
		}
	}
	return all
}

// together divides places into those that can be in one rule and the rest. A place that excludes a
// value of an attribute must be alone, since a rule excludes a value from all its places. So must one
// that another port tells apart from what the rule leaves out.
func (c *converter) together(u use, all []place) (in, apart []place) {
	for _, p := range all {
		tried := append(slices.Clone(in), p)
		out := c.without(u, tried)
		if len(in) > 0 && importers.Zeros(append(slices.Clone(in[0].when), p.when...)) != nil || slices.ContainsFunc(tried, func(q place) bool {
			return slices.ContainsFunc(out, func(o place) bool { return c.beaten[q.nth][o.nth] || !c.beaten[o.nth][q.nth] && q.unseen(&o) })
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
