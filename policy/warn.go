package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// maxCompared bounds how many pairs of rules and overrides are compared for
// warnings: a second or so for the largest files.
const maxCompared = 2_000_000

// Warnings returns what is allowed and likely not meant: keys that a client
// chooses freely, rules and overrides that are never reached, costs that can
// never pass, words without effect.
func (r *Rules) Warnings() []Warning {
	w := &warner{rules: r}
	for _, one := range r.rules {
		if _, freely := one.chosen(); !freely && !one.shadow && one.limits() && len(one.unless) == 0 {
			w.bounded = append(w.bounded, one)
		}
	}
	w.undeclared()
	for i, one := range r.rules {
		w.freeKey(one)
		w.client(one)
		w.impossible(one)
		w.unreachable(i, one)
		w.overrides(one)
		if one.shadow && one.final {
			w.say(one, "drop one of them", "final has no effect in shadow")
		}
	}
	return w.all
}

type warner struct {
	rules    *Rules
	bounded  []*rule // that hold clients by what they do not choose
	all      []Warning
	compared int
}

func (w *warner) say(r *rule, hint, format string, args ...any) {
	w.sayAt(r, r.line, r.column, hint, format, args...)
}

func (w *warner) sayAt(r *rule, line, column int, hint, format string, args ...any) {
	w.all = append(w.all, Warning{line, column, r.name, fmt.Sprintf(format, args...), hint})
}

// free reports whether a client chooses the attribute as it likes.
func (a attribute) free() bool {
	kind, _, _ := strings.Cut(a.name, ".")
	switch kind {
	case "header", "query", "cookie", "host", "path", "method":
		return true
	}
	return false
}

// chosen returns an attribute of the rule's key that a client chooses and no
// condition pins down.
func (r *rule) chosen() (attribute, bool) {
	for _, a := range r.key {
		if a.free() && !r.pinned(a) {
			return a, true
		}
	}
	return attribute{}, false
}

// pinned reports whether every match names the values that a may have.
func (r *rule) pinned(a attribute) bool {
	for _, conj := range r.match {
		found := false
		for i := range conj {
			c := &conj[i]
			found = found || c.name == a.name && c.exacts()+len(c.paths) > 0 && len(c.globs) == 0 && literal(c.paths)
		}
		if !found {
			return false
		}
	}
	return len(r.match) > 0
}

func literal(paths []pathPattern) bool {
	for i := range paths {
		if a := paths[i].anchor(); a.how != '|' || strings.Contains(a.text, "*") {
			return false
		}
	}
	return true
}

func (w *warner) freeKey(r *rule) {
	a, free := r.chosen()
	if !free || !r.limits() {
		return
	}
	for _, o := range w.bounded {
		if w.compared >= maxCompared || w.covers(o.match, r.match) {
			return
		}
	}
	w.say(r, "add a rule for the same requests with key: [ip]",
		"a client can have as many keys as it sends values of %s, and no other rule holds it by address", a.name)
}

// limits reports whether the rule ever sets limits.
func (r *rule) limits() bool {
	for _, p := range r.allPlans() {
		if p.id >= 0 {
			return true
		}
	}
	return false
}

// client warns of what a client can say in its own favour.
func (w *warner) client(r *rule) {
	if r.cost.fixed == 0 && r.cost.by.free() && r.cost.min < 1 {
		w.say(r, "drop min: 0 unless a proxy sets it", "a client that says %s: 0 pays nothing", r.cost.by.name)
	}
	if r.tiers != nil && r.tiers.by.free() {
		w.say(r, "use an attribute that your program has verified", "a client chooses its tier by %s", r.tiers.by.name)
	}
}

// impossible warns of costs that no limit lets through.
func (w *warner) impossible(r *rule) {
	least := r.cost.fixed
	if least == 0 {
		least = min(r.cost.min, r.cost.def)
	}
	for _, p := range r.allPlans() {
		for i, l := range p.limits {
			if least > l.Capacity() {
				w.say(r, "", "a request costs %d and %s lets through %d at most: none can ever pass", least, p.layers[i].Text, l.Capacity())
			}
		}
	}
}

// unreachable warns of a rule whose requests all end at an earlier one.
func (w *warner) unreachable(i int, r *rule) {
	for _, o := range w.rules.rules[:i] {
		if w.compared >= maxCompared {
			return
		}
		if o.alwaysEnds() && w.covers(o.match, r.match) {
			w.say(r, "put it first, or narrow the other", "never reached: rule %s ends the matching for all its requests", o.name)
			return
		}
	}
}

// alwaysEnds reports whether every request that matches ends its matching here.
func (r *rule) alwaysEnds() bool {
	switch {
	case r.shadow || len(r.unless) > 0:
		return false
	case r.final:
		return r.missing != missingSkip || len(r.key) == 0
	}
	return r.own != nil && r.own.action != "" && r.tiers == nil && len(r.overrides) == 0
}

// overrides warns of those that no request reaches.
func (w *warner) overrides(r *rule) {
	for k := range r.overrides {
		o := &r.overrides[k]
		if by := w.before(r, k); by >= 0 {
			w.sayAt(r, o.line, o.column, "the first that fits is taken: put the narrower first",
				"override by %s is never reached: the one in line %d takes its requests", o.when.names(), r.overrides[by].line)
			continue
		}
		for i := range o.when {
			if c := &o.when[i]; r.excludes(c) {
				w.sayAt(r, o.line, o.column, "", "override by %s never fits: the rule does not match such requests", o.when.names())
				break
			}
		}
	}
}

// names returns the attributes alone: values may be clients' keys, and warnings
// go into logs.
func (c conjunction) names() string {
	all := make([]string, len(c))
	for i := range c {
		all[i] = c[i].name
	}
	return strings.Join(all, " and ")
}

// before returns an earlier override that takes all requests of override k, or
// -1. One of plain values is sought through the index, any other by comparing.
func (w *warner) before(r *rule, k int) int {
	when := r.overrides[k].when
	if attrs, ok := when.sample(); ok {
		q := request{attrs: attrs}
		if err := (&Rules{path: true}).ready(&q); err != nil {
			return -1
		}
		for _, i := range r.overrideIndex.find(&q, nil) {
			if int(i) >= k {
				break
			}
			if r.overrides[i].when.miss(&q) == nil {
				return int(i)
			}
		}
		return -1
	}
	for i := range k {
		if w.compared >= maxCompared {
			break
		}
		if w.covers([]conjunction{r.overrides[i].when}, []conjunction{when}) {
			return i
		}
	}
	return -1
}

// sample returns the one request that a conjunction of plain values stands for.
func (c conjunction) sample() (Map, bool) {
	attrs := make(Map, len(c))
	for i := range c {
		if c[i].exacts() != 1 || len(c[i].globs) > 0 {
			return nil, false
		}
		for v := range c[i].exact() {
			attrs[c[i].name] = v
		}
	}
	return attrs, true
}

// excludes reports whether no match of the rule lets any value of c through.
func (r *rule) excludes(c *condition) bool {
	if c.exacts() == 0 || len(c.globs) > 0 || len(r.match) == 0 {
		return false
	}
	for v := range c.exact() {
		for _, conj := range r.match {
			fits := true
			for i := range conj {
				if conj[i].name == c.name {
					fits = fits && conj[i].match(&request{attrs: Map{c.name: v}})
				}
			}
			if fits {
				return false
			}
		}
	}
	return true
}

// covers reports whether every request that b matches is surely matched by a;
// no conditions match all.
func (w *warner) covers(a, b []conjunction) bool {
	if w.compared++; len(a) == 0 {
		return true
	}
	for _, narrow := range b {
		covered := false
		for _, wide := range a {
			covered = covered || wide.covers(narrow)
		}
		if !covered {
			return false
		}
	}
	return len(b) > 0
}

func (c conjunction) covers(narrow conjunction) bool {
	for i := range c {
		covered := false
		for k := range narrow {
			covered = covered || c[i].name == narrow[k].name && c[i].covers(&narrow[k])
		}
		if !covered {
			return false
		}
	}
	return true
}

// covers reports whether every value of o is surely one of c.
func (c *condition) covers(o *condition) bool {
	switch {
	case c.absent || o.absent:
		return c.absent && o.absent
	case o.present:
		return c.present
	case c.present:
		return !o.isExact("") && len(o.globs) == 0
	}
	for v := range o.exact() {
		if !c.isExact(v) && !anyGlob(c.globs, v) {
			return false
		}
	}
	for _, g := range o.globs {
		// A glob's text, stars and all, fits what takes all that it stands for.
		if !anyGlob(c.globs, strings.Join(g, "*")) {
			return false
		}
	}
	for i := range o.paths {
		if !anyPath(c.paths, &o.paths[i]) {
			return false
		}
	}
	return o.nets == nil || c.nets != nil && c.nets.holdsAll(o.nets)
}

func anyGlob(globs []glob, s string) bool {
	for _, g := range globs {
		if g.match(s) {
			return true
		}
	}
	return false
}

// anyPath reports whether one of the patterns takes all paths of p: one that is
// the same so far and then takes anything, or the same to the end.
func anyPath(paths []pathPattern, p *pathPattern) bool {
	for i := range paths {
		a := paths[i].segments
		for k := 0; ; k++ {
			if k == len(a)-1 && a[k].deep || k == len(a) && k == len(p.segments) {
				return true
			}
			if k >= len(a) || k >= len(p.segments) || !a[k].takes(&p.segments[k]) {
				break
			}
		}
	}
	return false
}

func (s *segment) takes(o *segment) bool {
	switch {
	case s.deep || o.deep:
		return s.deep && o.deep
	case s.any || o.any:
		return s.any
	}
	return s.glob.match(strings.Join(o.glob, "*"))
}

// holdsAll reports whether each range of o is in a range of the set.
func (s *netSet) holdsAll(o *netSet) bool {
	for p := range o.nets {
		if !s.holds(p) {
			return false
		}
	}
	return true
}

// holds reports whether one range of the set contains p.
func (s *netSet) holds(p netip.Prefix) bool {
	for _, n := range s.bits[family(p.Addr())] {
		if n > p.Bits() {
			break
		}
		wide, err := p.Addr().Prefix(n)
		if _, ok := s.nets[wide]; err == nil && ok {
			return true
		}
	}
	return false
}
