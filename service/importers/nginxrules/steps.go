package nginxrules

import (
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A step is what rewriting does with some requests: they go elsewhere, are answered before nginx
// counts (to is ""), or stay where they are.
type step struct {
	when   [][]importers.Cond // one of these holds; nil for all requests
	not    bool               // instead, none of when holds
	path   string
	to     string
	as     hop
	stays  bool // a break: what follows is not done
	loose  bool // a rewrite without a flag: what follows is done, with the new path
	unsure bool // it depends on conditions that rules do not know
	at     *Directive
}

// all reports whether a step is for all requests.
func (s *step) all() bool { return !s.unsure && !s.not && len(s.when) == 0 && s.path == "" }

// each returns the conditions of a step: a list for each alternative.
func (s *step) each() [][]importers.Cond {
	if len(s.when) == 0 {
		return [][]importers.Cond{nil}
	}
	return s.when
}

// way returns where a step leads.
func (s *step) way() way { return way{at: s.at, to: s.to, as: s.as} }

// outcomes returns an outcome for each alternative of a step.
func (s *step) outcomes(uses []use) (all []outcome) {
	for _, when := range s.each() {
		all = append(all, outcome{when: when, path: s.path, uses: uses, at: s.at})
	}
	return all
}

// changes reports whether a step has conditions on what redirects change.
func (s *step) changes() bool {
	return s.path != "" || slices.ContainsFunc(slices.Concat(s.when...), func(w importers.Cond) bool {
		return w.Attribute == "path" || w.Attribute == "method" || strings.HasPrefix(w.Attribute, "query.")
	})
}

// steps returns the rewriting of a location, up to what is for all requests. moved says that a
// redirect has led here. Steps behind a break for some requests are unsure, and all steps where
// limit_except keeps them from some methods.
func (c *converter) steps(l *location, moved bool) []step {
	all, blind := c.block(l, l.at.Block), l.at.has("limit_except")
	exprs := append(l.exprs(), `^/[^\n]*$`)
	if root := l.chain()[0]; l != root { // which may have set $args
		moved = moved || slices.ContainsFunc(c.block(root, root.at.Block), func(s step) bool { return s.at.Name == "set" })
	}
	for i := range all {
		s := &all[i]
		if s.path != "" && importers.Within(exprs, s.path) {
			s.path = ""
		}
		goesOn := s.loose && i < len(all)-1
		if s.unsure = s.unsure || blind || goesOn && !s.all() || moved && s.changes(); s.all() && !goesOn {
			all = slices.DeleteFunc(all[:i+1], func(o step) bool { // what has gone on comes here, but for a break of the server
				return o.loose && o.at != s.at && (l.parent != nil || !s.stays)
			})
			break
		}
		s.unsure = s.unsure || goesOn
		if blind = blind || s.stays; goesOn {
			moved, exprs = true, exprs[len(exprs)-1:]
		}
	}
	return slices.DeleteFunc(all, func(s step) bool { return s.stays })
}

// block reads the rewriting in a block, up to the directive that ends it.
func (c *converter) block(l *location, block []Directive) (all []step) {
	for i := range block {
		switch d := &block[i]; {
		case d.Name == "break":
			return append(all, step{stays: true, at: d})
		case d.Name == "return" && len(d.Args) > 0:
			return append(all, step{to: l.page(d.Args[0]), as: asGET, at: d})
		case d.Name == "rewrite" && len(d.Args) > 1:
			all = append(all, c.rewrite(l, d))
		case d.Name == "set" && len(d.Args) > 0 && strings.EqualFold(d.Args[0], "$args"):
			c.moved(d, allUses(l), "arg_")
			all = append(all, step{stays: true, unsure: true, at: d})
		case d.Name == "if":
			for _, s := range c.block(l, d.Block) {
				c.given(&s, d)
				all = append(all, s)
			}
			if i := slices.IndexFunc(d.Block, func(in Directive) bool { return in.Name == "error_page" }); i >= 0 && uses(l.chain()[0]) {
				c.lose(&d.Block[i], "error_page in if is NOT KEPT, with the limits that it may lead to: write it beside the if")
			}
		}
	}
	return all
}

// rewrite returns the step of a rewrite.
func (c *converter) rewrite(l *location, d *Directive) step {
	s := step{to: d.Args[1], path: d.Args[0], at: d}
	if importers.Within([]string{`^/[^\n]*$`}, s.path) {
		s.path = ""
	}
	flag := ""
	if len(d.Args) > 2 {
		flag = d.Args[2]
	}
	away := strings.HasPrefix(s.to, "http://") || strings.HasPrefix(s.to, "https://") || strings.HasPrefix(s.to, "$scheme")
	switch {
	case flag == "permanent":
		s.to, s.as = l.page("301"), asGET
	case away || flag == "redirect":
		s.to, s.as = l.page("302"), asGET
	case flag == "break" && l.parent != nil: // a server looks for a location all the same
		s.stays = true
		c.moved(d, l.uses, "uri", "document_uri", "arg_")
	}
	s.loose = flag == "" && !away
	return s
}
