// Package gateways makes rules of the limits of Kong, Traefik, ingress-nginx and Envoy's
// local rate limit filter, and says what of them means something else or is not kept.
package gateways

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"

	"github.com/stint-dev/stint/service/importers"
)

// A place is requests that a gateway treats alike: those of a route. A request is at the
// first of the places that takes it.
type place struct {
	when     [][]importers.Cond // any of them; nil if rules cannot say which
	at       node
	entries  []string // where the requests come in; nil is everywhere
	answered bool     // by the gateway, such as with a redirect
}

// besides reports whether what comes in at one place comes in nowhere at the other.
func (p *place) besides(q *place) bool {
	return p.entries != nil && q.entries != nil && !slices.ContainsFunc(p.entries, func(e string) bool { return slices.Contains(q.entries, e) })
}

// meets reports whether two places may take the same request, wherever it comes in.
func (p *place) meets(q *place) bool {
	return slices.ContainsFunc(p.when, func(a []importers.Cond) bool {
		return slices.ContainsFunc(q.when, func(b []importers.Cond) bool { return !importers.AllApart(a, b) })
	})
}

// whole reports whether it takes every request.
func (p *place) whole() bool {
	return slices.ContainsFunc(p.when, func(w []importers.Cond) bool { return len(w) == 0 })
}

// A converter makes the rules of one configuration.
type converter struct {
	places []place
	file   importers.File
	notes  importers.Notes
	errs   []error
}

// fail says what is wrong with a configuration.
func (c *converter) fail(n node, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", n.where(), fmt.Sprintf(format, args...)))
}

func (c *converter) done() ([]byte, importers.Notes, error) {
	if len(c.errs) > 0 {
		return nil, nil, errors.Join(c.errs...)
	}
	return c.file.YAML(), c.notes.Once(), nil
}

// everywhere is any request.
var everywhere = [][]importers.Cond{nil}

// is says what an attribute must be.
func is(attribute string, values ...string) importers.Cond {
	return importers.Cond{Attribute: attribute, Values: values}
}

// add adds a rule for the places in which it holds, by their numbers, and of their
// requests for those that fit more conditions. Where that is none, or stint cannot hold
// one of its limits, it says so.
func (c *converter) add(at node, r importers.Rule, in []int, more ...importers.Cond) {
	if r.Limits = c.limits(at, r); len(r.Limits) == 0 && !r.Block {
		return
	}
	var known []int
	lost := false
	for _, i := range in {
		switch {
		case slices.ContainsFunc(c.places[:i], func(p place) bool { return p.whole() && !p.besides(&c.places[i]) }): // those before it take every request
		case c.places[i].when != nil:
			known = append(known, i)
		default:
			lost = true
			c.notes.Lose(c.places[i].at.where(), "the limits of %s are NOT KEPT here: rules cannot name these requests", at.where())
		}
	}
	match, all := c.match(known, more)
	if r.Match = importers.General(match); !all {
		lost = true
		c.notes.Lose(at.where(), "a limit is NOT KEPT for some requests: rules cannot name them")
	}
	if len(r.Match) == 0 && lost {
		return
	}
	if len(r.Match) == 0 {
		c.notes.Say(at.where(), "no request has this limit: what goes before it takes them all")
		return
	}
	c.elsewhere(at, known)
	c.without(&r, known)
	r.Unless = importers.General(r.Unless)
	if len(r.Match[0]) == 0 {
		r.Match = nil
	}
	c.file.Rules = append(c.file.Rules, r)
}

// elsewhere notes the places that the rule of some takes in, since rules do not see where
// requests come in.
func (c *converter) elsewhere(at node, in []int) {
	for _, i := range in {
		p := &c.places[i]
		for j := range c.places {
			q := &c.places[j]
			if !slices.Contains(in, j) && p.besides(q) && !q.answered && p.meets(q) {
				c.notes.Say(at.where(), "rules do not see at which port or entry point a request comes in: this limit holds at %s, too", q.at.where())
			}
		}
	}
}

// limits are those of a rule that stint can hold.
func (c *converter) limits(at node, r importers.Rule) []string {
	return slices.DeleteFunc(slices.Clone(r.Limits), func(text string) bool {
		_, err := stint.Parse(text)
		if err != nil {
			c.notes.Lose(at.where(), "the limit of %s is NOT KEPT: %v", text, err)
		}
		return err != nil
	})
}

// match is the conditions of places, each with some more. ok is false if rules cannot have
// both of some that a request may hold to.
func (c *converter) match(in []int, more []importers.Cond) (all [][]importers.Cond, ok bool) {
	ok = true
	for _, i := range in {
		for _, when := range c.places[i].when {
			if one, can := importers.Both(when, more); can {
				all = append(all, one)
			} else if !importers.AllApart(when, more) {
				ok = false
			}
		}
	}
	return all, ok
}

// A part is some of the requests of a place.
type part struct {
	when  []importers.Cond
	own   bool // of the rule, or taken from it
	kept  bool
	place int
}

// without takes from a rule what is at other places that go before its own: by unless, or,
// if some of its own go before these, by overrides, which are tried in order.
func (c *converter) without(r *importers.Rule, in []int) {
	var parts []part
	var own, other []int
	for i := range slices.Max(in) + 1 {
		q, mine := &c.places[i], slices.Contains(in, i)
		if !slices.ContainsFunc(in, func(j int) bool { return !q.besides(&c.places[j]) }) {
			continue
		}
		if !mine && slices.ContainsFunc(in, func(j int) bool { p := &c.places[j]; return !p.answered && q.besides(p) && q.meets(p) }) {
			continue // the rule holds here, too, or not there
		}
		if c.places[i].when == nil {
			c.around(i)
		}
		for _, when := range c.places[i].when {
			p := part{when: when, own: mine, place: i}
			if p.own {
				own = append(own, len(parts))
			} else {
				other = append(other, len(parts))
			}
			parts = append(parts, p)
		}
	}
	before := func(i int, others []int) bool {
		return slices.ContainsFunc(others, func(j int) bool { return i < j && !importers.AllApart(parts[i].when, parts[j].when) })
	}
	other = slices.DeleteFunc(other, func(i int) bool {
		wide := slices.ContainsFunc(parts[i].when, func(c importers.Cond) bool { return c.Wide })
		if wide && before(i, own) {
			c.around(parts[i].place)
		}
		return wide || !before(i, own)
	})
	ordered := false
	for _, i := range other {
		parts[i].kept = true
	}
	for _, i := range own {
		parts[i].kept = before(i, other)
		ordered = ordered || parts[i].kept
	}
	for _, p := range parts {
		switch {
		case p.kept && ordered:
			r.Overrides = append(r.Overrides, importers.Override{When: p.when, Lifted: !p.own})
		case p.kept:
			r.Unless = append(r.Unless, p.when)
		}
	}
}

// around says that a place could not be taken from a rule.
func (c *converter) around(i int) {
	c.notes.Say(c.places[i].at.where(), "rules cannot name exactly these requests: the limits around them hold here too")
}

// A path is a condition on it; nil if rules cannot say it.
func exactPath(path string) []importers.Cond {
	if !importers.IsNamed(path) {
		return nil
	}
	return []importers.Cond{is("path", path)}
}

// pathBegins is that the path begins so, in the middle of a segment too.
func pathBegins(path string) []importers.Cond {
	if !importers.IsNamed(path) {
		return nil
	}
	return anyOf("path", importers.Prefixed(path))
}

// pathBelow is that the path is this or below it.
func pathBelow(path string) []importers.Cond {
	return pathBegins(strings.TrimSuffix(path, "/") + "/")
}

// anyOf is a condition, none where it is no condition.
func anyOf(attribute string, values []string) []importers.Cond {
	if slices.Contains(values, "/**") {
		return []importers.Cond{}
	}
	return []importers.Cond{is(attribute, values...)}
}

// pathFinds is that an expression fits the path, or a little more.
func (c *converter) pathFinds(at node, expr string, anyCase bool) []importers.Cond {
	globs, wide := importers.PathGlobs(expr, "/", anyCase, false)
	if len(globs) == 0 {
		return nil
	}
	if wide {
		c.notes.Say(at.where(), "%s takes more paths here: %s", expr, strings.Join(globs, " "))
	}
	all := anyOf("path", globs)
	for i := range all {
		all[i].Wide = wide
	}
	return all
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*$`)

// hostIs is a host, which may have stars; nil if it is none.
func hostIs(host string) []importers.Cond {
	if !hostName.MatchString(host) || len(host) > 250 {
		return nil
	}
	return []importers.Cond{is("host", strings.ToLower(host))}
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// header is the attribute of one; ok is false for a name that rules do not take.
func header(name string) (attribute string, ok bool) {
	return "header." + strings.ToLower(name), headerName.MatchString(name) && len(name) < 200 && !strings.EqualFold(name, "host")
}

// and are conditions of which both hold; nil if one of them is nil or a rule cannot have
// both.
func and(a, b [][]importers.Cond) [][]importers.Cond {
	if a == nil || b == nil || len(a)*len(b) > 1000 {
		return nil
	}
	all := [][]importers.Cond{}
	for _, x := range a {
		for _, y := range b {
			if importers.AllApart(x, y) {
				continue
			}
			one, ok := importers.Both(x, y)
			if !ok {
				return nil
			}
			all = append(all, one)
		}
	}
	return all
}

// ranges are addresses and ranges of them as rules have them; ok is false if one is none.
func ranges(texts []string) (all []string, ok bool) {
	for _, text := range texts {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, err := importers.PrefixOf(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, false
		}
		if all = append(all, p.String()); p.IsSingleIP() {
			all[len(all)-1] = p.Addr().String()
		}
	}
	return all, len(all) > 0
}

// getIsHead says once what GET means in rules.
func (c *converter) getIsHead(methods []string) {
	if slices.Contains(methods, "GET") && !slices.Contains(methods, "HEAD") {
		c.notes.Say("", "a method GET in rules means HEAD, too")
	}
}

// per is a period as text.
func per(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = text[:len(text)-2]
		}
	}
	if len(text) == 2 { // 1m
		return strings.TrimPrefix(text, "1")
	}
	return text
}
