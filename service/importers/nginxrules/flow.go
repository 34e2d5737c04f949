package nginxrules

import (
	"cmp"
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

// outcomes returns the outcomes of requests that come to a location. If conditions cannot express for
// which requests an outcome is, it takes more, and a note says that.
func (c *converter) outcomes(l *location) []outcome {
	w := c.rewriting(l)
	if w.ends {
		return w.first
	}
	return append(w.first, with(c.spread(c.settle(l), w.maybe), w.rest)...)
}

// A rewriting is what the rewriting of a location does before nginx counts.
type rewriting struct {
	first []outcome        // the outcomes of requests that do not go on
	rest  []importers.Cond // the conditions of requests that go on
	maybe outcome          // of some that go on, by conditions that rules do not know
	ends  bool             // no requests go on
}

func (c *converter) rewriting(l *location) (w rewriting) {
	for _, s := range slices.Backward(c.steps(l, false)) {
		there := outcome{at: s.at, uses: c.follow(l, s.way())}
		switch {
		case s.all():
			w = rewriting{first: []outcome{there}, ends: true}
		case s.unsure || s.not && (s.path != "" || s.to != "" || len(s.when) != 1 || len(s.when[0]) != 1):
			if there.uses == nil {
				if s.to == "" && (len(l.uses) > 0 || l.parent == nil && uses(l)) {
					c.note(s.at, "requests that this answers are counted here, and not there")
				}
				continue
			}
			if len(l.uses) == 0 {
				c.note(s.at, "requests that this hands on have the limits of %s there. Rules do not see which these are: here all of %s have them", s.to, l.text())
			}
			w.first, w.rest = c.spread(w.first, there), nil
			w.maybe = c.spread([]outcome{w.maybe}, there)[0]
		case s.not:
			w.first = with(w.first, s.when[0])
			if more, ok := importers.Both(w.rest, s.when[0]); ok {
				w.rest = more
			}
		default:
			w.first = append(s.outcomes(there.uses), w.first...)
		}
	}
	return w
}

// spread gives outcomes that have no limits those of another, which some of their requests have.
func (c *converter) spread(all []outcome, maybe outcome) []outcome {
	for i := range all {
		switch o := &all[i]; {
		case len(maybe.uses) == 0:
		case len(o.uses) == 0:
			if o.at != nil {
				c.note(o.at, "some requests have gone on to limits before this: here all have these")
			}
			o.uses, o.at = maybe.uses, cmp.Or(o.at, maybe.at)
		case !slices.Equal(o.uses, maybe.uses):
			c.lose(maybe.at, "requests that this hands on have limits of their own there, NOT KEPT: rules do not see which these are")
		}
	}
	return all
}

// settle returns the outcomes of requests that stay in a location.
func (c *converter) settle(l *location) []outcome {
	if len(l.uses) == 0 {
		return []outcome{{at: l.at, uses: c.content(l)}}
	}
	l.reached = true
	own := outcome{uses: l.uses, at: l.at}
	if !c.partial(l.uses) {
		return []outcome{own}
	}
	there := c.content(l) // l's content may count requests that l does not
	if there == nil {
		return []outcome{own}
	}
	if key := c.onlyKey(l.uses); key != "" {
		return []outcome{{when: []importers.Cond{{Attribute: key}}, uses: there, at: l.at}, own}
	}
	own.uses = slices.Concat(own.uses, there)
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

// ways returns how requests that a location does not count go on from it.
func (l *location) ways() (all []way) {
	if l.asks != nil && !l.denied {
		all = append(all, way{name: "auth_request", at: l.asks, to: l.asks.Args[0], as: asGET})
	}
	for i := range l.at.Block {
		d := &l.at.Block[i]
		if d.Name != "try_files" || len(d.Args) < 2 || l.denied {
			continue
		}
		if code, ends := strings.CutPrefix(d.last(), "="); !ends {
			all = append(all, way{name: "try_files", at: d, to: d.last(), as: redirected})
		} else {
			all = append(all, way{name: "try_files", at: d, to: l.page(code), as: asGET})
		}
	}
	for _, p := range l.errors {
		if l.meets(&p) {
			all = append(all, way{name: "error_page", at: p.at, to: p.to, as: asGET})
		}
	}
	for _, name := range l.index {
		if l.static && !l.denied {
			all = append(all, way{name: "index", at: l.at, to: name, as: redirected})
		}
	}
	return all
}

// content returns the limits of requests that a location does not count: auth_request, try_files, index
// or error_page may hand them on to a location that does.
func (c *converter) content(l *location) (all []use) {
	for _, w := range l.ways() {
		w.less = l.uses
		there := c.follow(l, w)
		switch {
		case there == nil:
			continue
		case w.name == "error_page" && !l.static:
			c.lose(w.at, "requests of %s that are answered by an error have the limits of %s there, NOT KEPT: rules decide before there is an answer", l.text(), w.to)
			continue
		case all != nil && !slices.Equal(all, there):
			c.lose(w.at, "requests that this hands on have limits of their own there, NOT KEPT: rules do not see which these are")
		case w.name != "auth_request":
			c.note(w.at, "%s leads to the limits of %s: here they hold for all of %s. nginx does not count files that are there: give the rule an unless for these, such as path: /**/*.css", w.name, w.to, l.text())
		}
		all = there
	}
	return all
}
