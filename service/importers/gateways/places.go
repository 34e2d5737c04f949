// Package gateways makes rules of the limits of Kong, Traefik, ingress-nginx and Envoy's
// local rate limit filter, and notes which limits change their meaning or are not kept.
package gateways

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy/rulesfile"

	"github.com/stint-dev/stint/service/importers"
)

// A place is the requests of one route, which a gateway treats alike. A request belongs to
// the first place that takes it.
type place struct {
	when     [][]importers.Cond // the requests that it takes; nil if rules cannot express them
	at       node
	entries  []string // the listeners or entry points that the requests come in by; nil is all
	answered bool     // the gateway answers the requests itself, such as by a redirect
	class    string   // places of other classes may be of other gateways, or for TLS alone: they take nothing from this one
	lacks    string   // says what is in no file, without which the gateway gives it no requests
	inner    bool     // another place takes its requests from all that are not around it
	tie      string   // of places with the same one that meet, it is not sure which has a request
	limits   string   // what two of them may have alike
	among    string   // of places with the same one, it is not sure whether one that moves goes first
	moves    bool
	folds    bool  // there, upper and lower case make a difference in its path, and here none
	former   []int // its rank in another order, which the gateway may take: the greater goes first
}

// besides reports whether no request comes in for both places.
func (p *place) besides(q *place) bool {
	return p.class != q.class || p.entries != nil && q.entries != nil &&
		!slices.ContainsFunc(p.entries, func(e string) bool { return slices.Contains(q.entries, e) })
}

// within reports whether all requests for p that q names come in where q takes them.
func (p *place) within(q *place) bool {
	return p.class == q.class && (q.entries == nil || p.entries != nil &&
		!slices.ContainsFunc(p.entries, func(e string) bool { return !slices.Contains(q.entries, e) }))
}

// unsure says why a request that q, which goes before p, names may be for p; "" if it is not.
func (p *place) unsure(q *place) string {
	switch {
	case q.lacks != "" && (q.lacks != p.lacks || strings.HasSuffix(q.lacks, notKnown)):
		return q.lacks
	case q.tie != "" && q.tie == p.tie && q.limits != p.limits:
		return "the files do not say whether this goes first"
	case (q.moves || p.moves) && q.among != "" && q.among == p.among:
		return "among regular expressions, whether this goes first is not sure"
	case q.former != nil && slices.Compare(q.former, p.former) <= 0 && q.limits != p.limits:
		return "Kong's version and router_flavor say whether this goes first"
	}
	return ""
}

// meets reports whether two places may take the same request, whatever their entries.
func (p *place) meets(q *place) bool {
	return slices.ContainsFunc(p.when, func(a []importers.Cond) bool {
		return slices.ContainsFunc(q.when, func(b []importers.Cond) bool { return !importers.AllApart(a, b) })
	})
}

// whole reports whether the place takes every request.
func (p *place) whole() bool {
	return slices.ContainsFunc(p.when, func(w []importers.Cond) bool { return len(w) == 0 })
}

// hidden reports whether a place before takes every request of one, by its index.
func (c *converter) hidden(i int) bool {
	p := &c.places[i]
	return slices.ContainsFunc(c.places[:i], func(q place) bool { return q.whole() && p.within(&q) && p.unsure(&q) == "" })
}

// An added is a rule for some places, by their indexes, and of their requests for those that meet more.
type added struct {
	at   node
	rule importers.Rule
	in   []int
	more []importers.Cond

	shares string // what it counts by, with all that have the same here; "" is by itself
}

// A converter makes the rules of one configuration.
type converter struct {
	places []place
	added  []added
	file   importers.File
	names  map[string]int // how many rules have a name, of several filters for the same requests
	notes  importers.Notes
	errs   []error

	proxied []setting // by which the program takes clients from what stands in front
}

// A setting is a field and its name.
type setting struct {
	name string
	at   node
}

// fronted notes the settings of [converter.proxied] in names of fields and in texts.
func (c *converter) fronted(n node, by *regexp.Regexp) {
	each(n, func(n node) bool {
		for _, f := range append(n.fields(), field{n.text(), n}) {
			if name := by.FindString(f.name); name != "" {
				c.proxied = append(c.proxied, setting{name, f.value})
			}
		}
		return true
	})
}

// foreign notes the fields of an object of another controller that may have limits, by their names or their text.
func (c *converter) foreign(object node, names string) {
	each(object.get("spec"), func(n node) bool {
		for _, f := range n.fields() {
			if importers.OneOf(f.name, names) || hasLimits.MatchString(f.value.text()) {
				c.notes.Lose(f.value.where(), "%s of a %s is NOT KEPT: it is not read", f.name, object.get("kind").text())
			}
		}
		return true
	})
}

// newConverter returns a converter that has noted the configurations in Secrets and binaryData, which are
// not read.
func newConverter(docs []Document) *converter {
	c := &converter{names: map[string]int{}}
	for _, d := range docs {
		if !d.root.is(rulesfile.MapKind) {
			continue
		}
		for _, o := range importers.ObjectsOf(d.root.Node) {
			for _, text := range o.Coded {
				if limiting.Match(text.Text) {
					c.notes.Lose(fmt.Sprintf("%s:%d", d.root.file, text.Line), "NOT KEPT: a configuration in binaryData or a Secret: write it into the data of a ConfigMap")
				}
			}
		}
	}
	return c
}

// fail notes an error of the configuration.
func (c *converter) fail(n node, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", n.where(), fmt.Sprintf(format, args...)))
}

func (c *converter) done() ([]byte, importers.Notes, error) {
	if len(c.errs) > 0 {
		return nil, nil, errors.Join(c.errs...)
	}
	c.next()
	byIP := func(all [][]importers.Cond) bool {
		return slices.ContainsFunc(slices.Concat(all...), func(w importers.Cond) bool { return w.Attribute == "ip" })
	}
	if slices.ContainsFunc(c.file.Rules, func(r importers.Rule) bool {
		return slices.Contains(r.Key, "ip") || byIP(r.Match) || byIP(r.Unless)
	}) {
		for _, s := range c.proxied {
			c.notes.Lose(s.at.where(), "%s is NOT KEPT: set trusted_proxies, or --proxy-protocol, to the addresses of your proxies, else all clients of one count as one", s.name)
		}
	}
	return c.file.YAML(), c.notes.Once(), nil
}

// knows notes the fields of an object that are none of the known ones as lost, since they may be limits, or
// change which requests have some. It returns why a place with such a field may have no requests. Case and
// _ make no difference in names; several of them may be in one text.
func (c *converter) knows(n node, known ...string) (lacks string) {
	for _, f := range n.fields() {
		if !importers.OneOf(f.name, known...) {
			lacks = cmp.Or(lacks, c.unknown("field", f.name, f.value))
		}
	}
	return lacks
}

// notKnown is the end of what a place with an unknown field lacks. Such places are not alike.
const notKnown = " is not known here"

// unknown notes a field, or the like, that is not known.
func (c *converter) unknown(kind, name string, at node) (lacks string) {
	lacks = "the " + kind + " " + name + notKnown
	c.notes.Lose(at.where(), "%s: NOT KEPT, with the limit that it may have", lacks)
	return lacks
}

// next writes the rules of the places, which must be known together, and begins with no places.
func (c *converter) next() {
	c.join()
	for _, a := range c.added {
		c.write(a.at, a.rule, a.in, a.more)
	}
	c.places, c.added = nil, nil
}

// join makes one rule of those that share a count, and notes those that differ.
func (c *converter) join() {
	var all []added
	for _, a := range c.added {
		text := func(r importers.Rule) string {
			r.Name = ""
			return fmt.Sprint(r)
		}
		i := slices.IndexFunc(all, func(b added) bool {
			return a.shares != "" && b.shares == a.shares && slices.Equal(b.rule.Key, a.rule.Key) && !slices.ContainsFunc(a.more, func(x importers.Cond) bool {
				return slices.Contains(a.rule.Key, x.Attribute) && importers.AllApart([]importers.Cond{x}, b.more)
			})
		})
		if i >= 0 && text(a.rule) == text(all[i].rule) && importers.Text(a.more) == importers.Text(all[i].more) {
			all[i].in = slices.Compact(slices.Sorted(slices.Values(slices.Concat(all[i].in, a.in))))
			continue
		}
		if i >= 0 {
			c.notes.Lose(a.at.where(), "one count with that of %s is NOT KEPT: each counts apart here", all[i].at.where())
		}
		all = append(all, a)
	}
	c.added = all
}

// everywhere takes every request.
var everywhere = [][]importers.Cond{nil}

// is returns the condition that an attribute has one of the values.
func is(attribute string, values ...string) importers.Cond {
	return importers.Cond{Attribute: attribute, Values: values}
}

// add adds a rule for the places with the indexes in, and of their requests for those that
// meet more.
func (c *converter) add(at node, r importers.Rule, in []int, more ...importers.Cond) {
	c.added = append(c.added, added{at: at, rule: r, in: in, more: more})
}

// write writes a rule to the file. If there are no requests for it, or stint cannot hold a limit of
// the rule, it notes that instead.
func (c *converter) write(at node, r importers.Rule, in []int, more []importers.Cond) {
	if r.Limits = c.limits(at, r); len(r.Limits) == 0 && !r.Block {
		return
	}
	var known []int
	lost := false
	for _, i := range in {
		switch {
		case c.hidden(i):
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
	if slices.ContainsFunc(slices.Concat(r.Match...), func(w importers.Cond) bool { return w.Spelled }) {
		c.notes.Lose(at.where(), "a limit by the words of a header is NOT KEPT for other spellings: there, case makes no difference")
	}
	c.elsewhere(at, known)
	c.without(&r, known)
	r.Unless = importers.General(r.Unless)
	if len(r.Match[0]) == 0 {
		r.Match = nil
	}
	c.names[r.Name]++
	if n := c.names[r.Name]; n > 1 {
		r.Name = importers.NameOf(r.Name, fmt.Sprint(n))
	}
	c.file.Rules = append(c.file.Rules, r)
}

// elsewhere notes the places with other entries or of other classes to which a rule applies too,
// since rules do not see by which entry a request came in.
func (c *converter) elsewhere(at node, in []int) {
	for _, i := range in {
		for j := range c.places {
			p, q := &c.places[i], &c.places[j]
			more := p.besides(q) || !p.answered && !c.places[max(i, j)].within(&c.places[min(i, j)])
			if more && !slices.Contains(in, j) && !q.answered && p.meets(q) {
				c.notes.Say(at.where(), "rules do not see by which port, entry point, TLS or Ingress class a request comes in: this limit holds at %s, too", q.at.where())
			}
		}
	}
}

// limits returns the limits of a rule that stint can hold, and notes the others.
func (c *converter) limits(at node, r importers.Rule) []string {
	return slices.DeleteFunc(slices.Clone(r.Limits), func(text string) bool {
		_, err := stint.Parse(text)
		if err != nil {
			c.notes.Lose(at.where(), "the limit of %s is NOT KEPT: %v", text, err)
		}
		return err != nil
	})
}

// match returns the conditions of places, each together with more. ok is false if rules
// cannot express both together, though a request may meet them.
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

// A part is one of the lists of conditions of a place.
type part struct {
	when  []importers.Cond
	own   bool // the rule is for these requests; else they are taken from it
	kept  bool
	place int
}

// without takes from a rule the requests of other places before its own: by unless, or if one
// of its own comes before such a place, by overrides, which are tried in order.
func (c *converter) without(r *importers.Rule, in []int) {
	parts, ordered := []part{}, false
	var own, other []int
	for i := range slices.Max(in) + 1 {
		q, mine := &c.places[i], slices.Contains(in, i)
		if !slices.ContainsFunc(in, func(j int) bool { return !q.besides(&c.places[j]) }) {
			continue
		}
		if !mine && slices.ContainsFunc(in, func(j int) bool {
			p := &c.places[j]
			if p.answered || !q.meets(p) {
				return false
			}
			why := ""
			if i < j {
				why = p.unsure(q)
			}
			if why != "" && !q.inner {
				c.notes.Say(q.at.where(), "%s: the limits of %s hold here too", why, p.at.where())
			}
			return why != "" || !p.within(q)
		}) {
			continue // to take these requests away would lift the limit where it applies
		}
		if c.places[i].when == nil {
			c.around(c.places[i].at)
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
		p := &parts[i]
		less, ok := surely(p.when)
		if !before(i, own) {
			return true
		}
		if ok {
			p.when = less
		} else if ok = c.covered(r, p.place); !ok {
			c.around(c.places[p.place].at)
		}
		return !ok
	})
	for _, i := range other {
		parts[i].kept = true
		c.folded(&c.places[parts[i].place])
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

// folded notes that requests are taken from a rule in other letters, too.
func (c *converter) folded(q *place) {
	if q.folds {
		c.notes.Lose(q.at.where(), "a limit is NOT KEPT for this path in other letters: rules take upper and lower case for the same, as another host has regular expressions")
	}
}

// covered reports whether the requests of a place have limits of their own that are no looser than those
// of a rule, by its key or by a key that more requests share, unless the rule frees them.
func (c *converter) covered(r *importers.Rule, place int) bool {
	has := func(holds func(a *importers.Rule) bool) bool {
		return slices.ContainsFunc(c.added, func(a added) bool {
			return slices.Contains(a.in, place) && a.more == nil && a.rule.Shadow == r.Shadow &&
				!slices.ContainsFunc(a.rule.Key, func(k string) bool { return !slices.Contains(r.Key, k) }) &&
				!slices.ContainsFunc(a.rule.Unless, func(u []importers.Cond) bool {
					return !slices.ContainsFunc(r.Unless, func(o []importers.Cond) bool { return importers.Text(o) == importers.Text(u) })
				}) && holds(&a.rule)
		})
	}
	return has(func(a *importers.Rule) bool { return a.Block }) || !r.Block && !slices.ContainsFunc(r.Limits, func(limit string) bool {
		return !has(func(a *importers.Rule) bool {
			return slices.ContainsFunc(a.Limits, func(own string) bool { return importers.NoLooser(own, limit) })
		})
	})
}

// surely returns conditions that take no more requests than the imported ones; ok is false if rules cannot
// express them.
func surely(when []importers.Cond) (less []importers.Cond, ok bool) {
	less, ok = importers.Surely(when)
	return less, ok && !importers.TakesHead(less)
}

// around notes that requests could not be taken from a rule.
func (c *converter) around(at node) {
	c.notes.Say(at.where(), "rules cannot name exactly these requests, or take a path with a slash at its end for the same: the limits around them hold here too")
}

// exactPath returns the condition that the path is path; nil if rules cannot express it. Rules take
// the same path with a slash at the other end, so that it limits both, and frees neither.
func exactPath(path string) []importers.Cond {
	if !importers.IsNamed(path) {
		return nil
	}
	return []importers.Cond{{Attribute: "path", Values: []string{path}, Wide: path != "/"}}
}

// pathBegins returns the condition that the path begins with path, even within a segment.
func pathBegins(path string) []importers.Cond {
	if !importers.IsNamed(path) {
		return nil
	}
	all := anyOf("path", importers.Prefixed(path))
	if len(all) > 0 && strings.HasSuffix(path, "/") { // rules take /a for /a/
		all[0].Wide, all[0].Less = true, []string{path + "*/**"}
	}
	return all
}

// pathBelow returns the condition that the path is path or below it.
func pathBelow(path string) []importers.Cond {
	path = strings.TrimSuffix(path, "/") + "/"
	if !importers.IsNamed(path) {
		return nil
	}
	return anyOf("path", importers.Prefixed(path))
}

// anyOf returns a condition, or none if the values take every path.
func anyOf(attribute string, values []string) []importers.Cond {
	if slices.Contains(values, "/**") {
		return []importers.Cond{}
	}
	return []importers.Cond{is(attribute, values...)}
}

// pathFinds returns the condition that the path matches an expression. It notes wider ones.
func (c *converter) pathFinds(at node, expr string, anyCase bool) []importers.Cond {
	found := importers.PathGlobs(expr, anyCase, []string{"/"}, nil)
	if len(found.All) == 0 {
		return nil
	}
	if found.More {
		c.notes.Say(at.where(), "%s takes more paths here: %s", expr, strings.Join(found.All, " "))
	}
	all := anyOf("path", found.All)
	if anyCase {
		expr = "(?i)" + expr
	}
	for i := range all {
		all[i].Wide = found.More || importers.Wider(found.All, expr)
		all[i].Less = slices.DeleteFunc(slices.Clone(found.Less), func(g string) bool { return importers.Wider([]string{g}, expr) })
	}
	return all
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*$`)

// hostIs returns the condition of a host, which may have stars; nil if it is no host.
func hostIs(host string) []importers.Cond {
	if !hostName.MatchString(host) || len(host) > 250 {
		return nil
	}
	return []importers.Cond{is("host", strings.ToLower(host))}
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// header returns the attribute of a header; ok is false if rules do not take the name, or if
// stint proxy removes the header from requests.
func header(name string) (attribute string, ok bool) {
	return "header." + strings.ToLower(name), headerName.MatchString(name) && len(name) < 200 && !strings.EqualFold(name, "host") && !request.Claimed(http.CanonicalHeaderKey(name))
}

// and returns conditions for the requests that meet both a and b; nil if one of them is nil
// or a rule cannot express them.
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

// ranges returns addresses and ranges as rules write them; ok is false if a text is neither.
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

// getIsHead notes once that GET in rules matches HEAD too.
func (c *converter) getIsHead(methods []string) {
	if slices.Contains(methods, "GET") && !slices.Contains(methods, "HEAD") {
		c.notes.Say("", "a method GET in rules means HEAD, too")
	}
}

// per returns a period as limits write it: 1m0s is m.
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
