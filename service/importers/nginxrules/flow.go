package nginxrules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// An outcome is the limits of requests that meet its conditions, and not those of the outcomes
// before it.
type outcome struct {
	when  []importers.Cond
	path  string   // an expression that the path matches; "" for any path
	globs []string // one pattern for the path below the location; nil for any
	uses  []use
	at    *Directive
}

// A step is what rewriting does with some requests: they go elsewhere, or are answered
// (to is "") before nginx counts.
type step struct {
	when   [][]importers.Cond // one of these holds; nil for all requests
	not    bool               // instead, none of when holds
	path   string
	to     string
	unsure bool // it depends on conditions that rules do not know
	at     *Directive
}

// flow returns the outcomes of requests that come to a location. If conditions cannot express
// for which requests an outcome is, it takes more, and flow notes that.
func (c *converter) flow(l *location, deep int) []outcome {
	w := c.rewriting(l, deep)
	if w.end != nil {
		return append(w.first, w.end...)
	}
	there := c.settle(l, deep)
	if !limits(there) && w.maybe != nil {
		there = w.maybe
	}
	return append(w.first, with(there, w.rest)...)
}

// A rewriting is what the rewriting of a location does before nginx counts.
type rewriting struct {
	first []outcome        // the outcomes of requests that do not go on
	rest  []importers.Cond // the conditions of requests that go on
	maybe []outcome        // of some that go on, by conditions that rules do not know; or nil
	end   []outcome        // of all that go on; nil if they stay in the location
}

func (c *converter) rewriting(l *location, deep int) (w rewriting) {
	for _, s := range c.steps(l, l.at.Block) {
		there := []outcome{{at: s.at}}
		if s.to != "" {
			there = c.follow(l, s.to, deep)
		}
		switch {
		case !s.unsure && !s.not && len(s.when) == 0 && s.path == "":
			if w.end = with(there, w.rest); w.maybe != nil && !limits(there) {
				c.note(s.at, "some requests have gone on to limits before this: here all of %s have these", l.text())
				w.end = with(w.maybe, w.rest)
			}
			return w
		case s.unsure, s.not && (s.to != "" || len(s.when) != 1 || len(s.when[0]) != 1), w.maybe != nil && !limits(there):
			if c.unsure(l, &s, there) {
				w.maybe = there
			}
		case s.not:
			if more, ok := importers.Both(w.rest, s.when[0]); ok {
				w.rest = more
			}
		default:
			for _, o := range s.outcomes(there) {
				if more, ok := importers.Both(o.when, w.rest); ok {
					o.when = more
					w.first = append(w.first, o)
				}
			}
		}
	}
	return w
}

// unsure notes what rules do not know about a step. there are the outcomes of its target; unsure
// reports whether all requests get the limits of these.
func (c *converter) unsure(l *location, s *step, there []outcome) bool {
	switch {
	case s.to == "" && (len(l.uses) > 0 || l.parent == nil && uses(l)):
		c.note(s.at, "requests that this answers are counted here, and not there")
	case s.to == "" || !limits(there):
	case len(l.uses) == 0:
		c.note(s.at, "requests that this hands on have the limits of %s there. Rules do not see which these are: here all of %s have them", s.to, l.text())
		return true
	case !same(there, l.uses):
		c.lose(s.at, "requests that this hands on have the limits of %s there, NOT KEPT: rules do not see which these are", s.to)
	default:
		return true // the location may leave requests uncounted that its target counts
	}
	return false
}

// outcomes returns the outcomes of a step's target, there, under the conditions of the step.
func (s *step) outcomes(there []outcome) (all []outcome) {
	for _, when := range s.each() {
		for _, o := range there {
			if more, ok := importers.Both(when, o.when); ok && (s.path == "" || o.path == "") {
				all = append(all, outcome{when: more, path: s.path + o.path, globs: o.globs, uses: o.uses, at: s.at})
			}
		}
	}
	return all
}

// settle returns the outcomes of requests that stay in a location.
func (c *converter) settle(l *location, deep int) []outcome {
	if len(l.uses) == 0 {
		return c.content(l, deep)
	}
	l.reached = true
	own := outcome{uses: l.uses, at: l.at}
	if !c.partial(l.uses) {
		return []outcome{own}
	}
	there := c.content(l, deep) // l's content may count requests that l does not
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

// each returns the conditions of a step: a list for each alternative.
func (s *step) each() [][]importers.Cond {
	if len(s.when) == 0 {
		return [][]importers.Cond{nil}
	}
	return s.when
}

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

func same(all []outcome, uses []use) bool {
	return !slices.ContainsFunc(all, func(o outcome) bool { return !slices.Equal(o.uses, uses) })
}

// content returns the outcomes of requests that a location does not count: auth_request,
// try_files, index or error_page may hand them on to a location that does.
func (c *converter) content(l *location, deep int) []outcome {
	for i := range l.at.Block {
		d := &l.at.Block[i]
		if d.Name == "auth_request" && len(d.Args) == 1 && d.Args[0] != "off" {
			if there := c.follow(l, d.Args[0], deep); limits(there) {
				return there
			}
		}
		if d.Name != "try_files" || len(d.Args) < 2 || strings.HasPrefix(d.Args[len(d.Args)-1], "=") {
			continue
		}
		to := d.Args[len(d.Args)-1]
		if there := c.follow(l, to, deep); limits(there) {
			c.note(d, "try_files leads to the limits of %s: here they hold for all of %s. nginx does not count files that are there: give the rule an unless for these", to, l.text())
			return there
		}
	}
	for _, p := range l.errors {
		if !l.meets(&p) {
			continue
		}
		there := c.follow(l, p.to, deep)
		switch {
		case !limits(there):
		case l.static && !l.isExpr():
			c.note(p.at, "error_page leads to the limits of %s: here they hold for all of %s. nginx does not count files that are there: give the rule an unless for these", p.to, l.text())
			return there
		default:
			c.lose(p.at, "requests of %s that are answered by an error have the limits of %s there, NOT KEPT: rules decide before there is an answer", l.text(), p.to)
		}
	}
	for _, name := range l.index {
		dir := strings.TrimSuffix(l.sample(), "x")
		if !l.static || l.isExpr() || strings.Contains(name, "$") || !strings.HasSuffix(dir, "/") {
			continue
		}
		if there := c.follow(l, dir+strings.TrimPrefix(name, "/"), deep); limits(there) {
			c.note(l.at, "index leads to the limits of %s, for directories: here they hold where the last part of a path has no dot, with a count of their own", name)
			return append([]outcome{{globs: []string{"/**/*.*"}, at: l.at}}, there...)
		}
	}
	return []outcome{{at: l.at}}
}

func (l *location) sample() string {
	for at := l; at != nil; at = at.parent {
		switch {
		case at.parent == nil:
			return "/x"
		case at.kind == "=":
			return at.path
		case at.kind == "" || at.kind == "^~":
			return strings.TrimSuffix(at.path, "/") + "/x"
		}
	}
	return "/x"
}

const mostFollowed = 10_000

// follow returns the outcomes of requests that nginx redirects internally, from l to a path or
// to a named location.
func (c *converter) follow(l *location, to string, deep int) []outcome {
	answered := []outcome{{at: l.at}}
	if c.followed++; deep > deepest || c.followed > mostFollowed {
		return answered // nginx takes so many redirects for a cycle
	}
	root := l.chain()[0]
	if strings.HasPrefix(to, "@") {
		for _, b := range root.below {
			if b.kind == "@" && b.path == to {
				return c.flow(b, deep+1)
			}
		}
		return answered
	}
	path, _, _ := strings.Cut(to, "?")
	path = variable.ReplaceAllStringFunc(path, func(v string) string {
		switch strings.Trim(v, "${}") {
		case "uri", "document_uri", "request_uri":
			return l.sample()
		case "args", "is_args", "query_string":
			return ""
		}
		return "x"
	})
	there := answered
	switch found, _ := root.find(path); {
	case !strings.HasPrefix(path, "/"), found == l && len(l.uses) == 0:
	case found == root, found == l: // their own rewriting is done once
		there = c.settle(found, deep+1)
	default:
		there = c.flow(found, deep+1)
	}
	for _, o := range there {
		c.moved(l.at, o.uses)
	}
	return there
}

// moved says that requests whose path or query nginx has changed are counted by what was sent.
func (c *converter) moved(d *Directive, uses []use) {
	for _, u := range uses {
		if c.zones[u.zone].moves {
			c.lose(d, "for requests that are rewritten here, the limit of the zone %s is NOT KEPT as it is: nginx counts them by the path or query that this makes, rules by those that clients send", u.zone)
		}
	}
}

// steps reads the rewriting of a block, up to the directive that ends it. Steps behind a break for
// some requests are unsure, and all steps where limit_except keeps them from some methods.
func (c *converter) steps(l *location, block []Directive) (all []step) {
	unsure := l.at.has("limit_except")
	add := func(s step) {
		s.unsure = s.unsure || unsure
		all = append(all, s)
	}
	for i := range block {
		switch d := &block[i]; d.Name {
		case "break":
			return all
		case "return":
			to := ""
			if len(d.Args) > 0 {
				to = l.page(d.Args[0])
			}
			add(step{to: to, at: d})
			return all
		case "rewrite":
			if s, ok := rewritten(d); ok {
				add(s)
			} else {
				unsure = true
				c.moved(d, l.uses)
			}
		case "if":
			if inner := c.steps(l, d.Block); len(inner) > 0 {
				s := inner[0] // most blocks of an if have one step
				c.given(&s, d)
				add(s)
			}
			unsure = unsure || slices.ContainsFunc(d.Block, func(in Directive) bool { return in.Name == "break" || slices.Contains(in.Args, "break") })
		}
	}
	return all
}

var everyPath = regexp.MustCompile(`^\^?/?(\(?\.[*+]\)?)?\$?$|^\^$|^\.$`)

// rewritten returns the step of a rewrite. ok is false if requests stay in the location.
func rewritten(d *Directive) (s step, ok bool) {
	if len(d.Args) < 2 {
		return s, false
	}
	s = step{to: d.Args[1], path: d.Args[0], at: d}
	if everyPath.MatchString(s.path) {
		s.path = ""
	}
	flag := ""
	if len(d.Args) > 2 {
		flag = d.Args[2]
	}
	if flag == "redirect" || flag == "permanent" || strings.HasPrefix(s.to, "http://") || strings.HasPrefix(s.to, "https://") || strings.HasPrefix(s.to, "$scheme") {
		s.to = ""
	}
	return s, flag != "break"
}
