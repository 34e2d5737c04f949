package nginxrules

import (
	"reflect"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// An outcome is the limits of requests that meet its conditions, and not those of the outcomes
// before it.
type outcome struct {
	when []importers.Cond
	path string // an expression that the path matches; "" for any path
	uses []use
	at   *Directive
}

// flow returns the outcomes of requests that come to a location. If conditions cannot express
// for which requests an outcome is, it takes more, and flow notes that. moved says that a redirect
// has led here; then the outcomes are those that are known so far, nil if none are.
func (c *converter) flow(l *location, moved bool) []outcome {
	if !moved {
		return c.outcomes(l, false)
	}
	if !c.seen[l] {
		c.seen[l] = true
		c.learn(l, c.outcomes(l, true))
	}
	return slices.Clone(c.known[l])
}

func (c *converter) learn(l *location, all []outcome) {
	if !reflect.DeepEqual(all, c.known[l]) {
		c.known[l], c.learned = all, true
	}
}

func (c *converter) outcomes(l *location, moved bool) []outcome {
	if l.parent == nil {
		return brief(c.settle(l)) // its rewriting has been done
	}
	w := c.rewriting(l, moved)
	if w.ends {
		return brief(w.first)
	}
	return brief(append(w.first, with(c.either(c.settle(l), w.maybe), w.rest)...))
}

// brief leaves out outcomes that no request has, and those that say the same as the last.
func brief(all []outcome) (kept []outcome) {
	for _, o := range all {
		if !slices.ContainsFunc(kept, func(k outcome) bool { return k.path == o.path && importers.Text(k.when) == importers.Text(o.when) }) {
			kept = append(kept, o)
		}
	}
	for n := len(kept); n > 1 && len(kept[n-1].when) == 0 && slices.Equal(kept[n-1].uses, kept[n-2].uses); n = len(kept) {
		kept = slices.Delete(kept, n-2, n-1)
	}
	return kept
}

// A rewriting is what the rewriting of a location does before nginx counts.
type rewriting struct {
	first []outcome        // the outcomes of requests that do not go on
	rest  []importers.Cond // the conditions of requests that go on
	maybe []outcome        // of some that go on, by conditions that rules do not know; or nil
	ends  bool             // no requests go on
}

func (c *converter) rewriting(l *location, moved bool) (w rewriting) {
	for _, s := range slices.Backward(c.steps(l, moved)) {
		there := []outcome{{at: s.at}}
		if s.to != "" {
			there = c.follow(l, s.at, s.to, s.as)
		}
		own, ok := s.outcomes(there)
		switch {
		case s.all():
			if w = (rewriting{first: there, ends: true}); there == nil && !moved { // a cycle, which nginx ends
				w.first = []outcome{{at: s.at}}
			}
		case s.unsure, !ok, s.not && (s.to != "" || len(s.when) != 1 || len(s.when[0]) != 1):
			if s.to == "" && (len(l.uses) > 0 || l.parent == nil && uses(l)) {
				c.note(s.at, "requests that this answers are counted here, and not there")
			} else if limits(there) && len(l.uses) == 0 {
				c.note(s.at, "requests that this hands on have the limits of %s there. Rules do not see which these are: here all of %s have them", s.to, l.text())
			}
			w.first, w.maybe = c.spread(w.first, there), c.either(w.maybe, there)
		case s.not:
			w.first = with(w.first, s.when[0])
			if more, ok := importers.Both(w.rest, s.when[0]); ok {
				w.rest = more
			}
		default:
			w.first = append(own, w.first...)
		}
	}
	return w
}

// either returns the outcomes of requests that may have those of one list or of the other: rules
// do not see which.
func (c *converter) either(all, maybe []outcome) []outcome {
	if maybe != nil && !limits(all) {
		return slices.Clone(maybe)
	}
	return c.spread(all, maybe)
}

// spread gives outcomes the limits of others that some of their requests have.
func (c *converter) spread(all, maybe []outcome) []outcome {
	i := slices.IndexFunc(maybe, func(o outcome) bool { return len(o.uses) > 0 })
	if i < 0 {
		return all
	}
	limited := maybe[i].uses
	if slices.ContainsFunc(slices.Concat(all, maybe), func(o outcome) bool { return len(o.uses) > 0 && !slices.Equal(o.uses, limited) }) {
		c.lose(maybe[i].at, "requests that this hands on have limits of their own there, NOT KEPT: rules do not see which these are")
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		if len(all[i].uses) == 0 {
			c.note(all[i].at, "some requests have gone on to limits before this: here all have these")
			all[i].uses = limited
		}
	}
	return all
}

// settle returns the outcomes of requests that stay in a location.
func (c *converter) settle(l *location) []outcome {
	if len(l.uses) == 0 {
		return c.content(l)
	}
	l.reached = true
	own := outcome{uses: l.uses, at: l.at}
	if !c.partial(l.uses) {
		return []outcome{own}
	}
	there := c.content(l) // l's content may count requests that l does not
	if !limits(there) {
		return []outcome{own}
	}
	if key := c.onlyKey(l.uses); key != "" {
		return append(with(there, []importers.Cond{{Attribute: key}}), own)
	}
	for _, o := range there {
		for _, u := range o.uses {
			if !slices.Contains(own.uses, u) {
				own.uses = append(slices.Clone(own.uses), u)
			}
		}
	}
	c.note(l.at, "requests that the limits of %s do not count go on to others: here all of it has these too", l.text())
	return []outcome{own}
}

// partial reports whether there may be requests that none of the limits counts.
func (c *converter) partial(uses []use) bool {
	return !slices.ContainsFunc(uses, func(u use) bool {
		return slices.ContainsFunc(c.zones[u.zone].variants, func(v variant) bool { return v.when == nil && v.unless == nil && !v.alone })
	})
}

// onlyKey returns the attribute without which the limits do not count a request; "" if it is
// not one alone. partial must be true for them.
func (c *converter) onlyKey(uses []use) (key string) {
	for _, u := range uses {
		v := c.zones[u.zone].variants
		if len(v) != 1 || v[0].when != nil || v[0].unless != nil || key != "" && v[0].key[0] != key {
			return ""
		}
		key = v[0].key[0] // the only one, since partial is true
	}
	return key
}

// with narrows outcomes to requests that meet conditions, if rules can have both. Those that do
// not meet them have no limit.
func with(all []outcome, when []importers.Cond) []outcome {
	for i := range all {
		if more, ok := importers.Both(all[i].when, when); ok {
			all[i].when = more
		}
	}
	return all
}

func limits(all []outcome) bool {
	return slices.ContainsFunc(all, func(o outcome) bool { return len(o.uses) > 0 })
}

// content returns the outcomes of requests that a location does not count: auth_request,
// try_files, index or error_page may hand them on to a location that does.
func (c *converter) content(l *location) []outcome {
	all := []outcome{{at: l.at}}
	hands := func(name string, d *Directive, to string, there []outcome) {
		for i := range there { // a limit that has not counted them here does not count them there
			there[i].uses = slices.DeleteFunc(slices.Clone(there[i].uses), func(u use) bool { return slices.Contains(l.uses, u) })
		}
		switch {
		case !limits(there):
		case name == "error_page" && !l.static:
			c.lose(d, "requests of %s that are answered by an error have the limits of %s there, NOT KEPT: rules decide before there is an answer", l.text(), to)
		case name != "auth_request":
			c.note(d, "%s leads to the limits of %s: here they hold for all of %s. nginx does not count files that are there: give the rule an unless for these, such as path: /**/*.css", name, to, l.text())
			fallthrough
		default:
			all = c.either(all, there)
		}
	}
	if l.asks != nil && !l.denied {
		hands("auth_request", l.asks, l.asks.Args[0], c.follow(l, l.asks, l.asks.Args[0], asGET))
	}
	for i := range l.at.Block {
		d := &l.at.Block[i]
		if to := d.last(); d.Name == "try_files" && len(d.Args) > 1 && !l.denied && !strings.HasPrefix(to, "=") {
			hands("try_files", d, to, c.follow(l, d, to, redirected))
		}
	}
	for _, p := range l.errors {
		if l.meets(&p) {
			hands("error_page", p.at, p.to, c.follow(l, p.at, p.to, asGET))
		}
	}
	for _, name := range l.index {
		if l.static && !l.denied {
			hands("index", l.at, name, c.indexed(l, name))
		}
	}
	return all
}
