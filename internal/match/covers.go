package match

import (
	"slices"
	"strings"
)

// Covers reports whether c certainly holds for every request for which narrow holds. False means
// only that this is not certain.
func (c Conjunction) Covers(narrow Conjunction) bool {
	for i := range c {
		if !slices.ContainsFunc(narrow, func(n Condition) bool { return c[i].Name == n.Name && c[i].covers(&n) }) {
			return false
		}
	}
	return true
}

// covers reports whether c certainly matches every value that o matches.
func (c *Condition) covers(o *Condition) bool {
	switch {
	case c.Absent || o.Absent:
		return c.Absent && o.Absent
	case o.Present:
		return c.Present
	case c.Present:
		return !o.isExact("") && len(o.others().globs) == 0
	}
	for v := range o.exact() {
		if !c.isExact(v) && !anyGlob(c.others().globs, v) {
			return false
		}
	}
	for _, g := range o.others().globs {
		// A pattern that matches the text of glob g, stars included, matches all texts that g does.
		if !anyGlob(c.others().globs, strings.Join(g, "*")) {
			return false
		}
	}
	for i := range o.others().paths {
		if !anyPath(c.others().paths, &o.others().paths[i]) {
			return false
		}
	}
	if o.others().nets != nil {
		for p := range o.others().nets.values {
			if c.others().nets == nil || !c.others().nets.has(p) {
				return false
			}
		}
	}
	return true
}

func anyGlob(globs []glob, s string) bool {
	for _, g := range globs { // a loop, since a call through a pointer would cost each request time
		if g.match(s) {
			return true
		}
	}
	return false
}

// anyPath reports whether one of the patterns matches all paths that p does: it is the same as p up
// to the end, or up to a ** at its own end.
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

// Script returns a path of the condition that looks like a script's, such as /login.php, if the
// condition does not hold for the paths below it; otherwise "". Servers such as Apache pass paths
// below a script to the script (PATH_INFO).
func (c *Condition) Script() (path string) {
	for i := range min(len(c.others().paths), 64) { // bounded, since each is compared with all
		path = ""
		for _, s := range c.others().paths[i].segments {
			if s.any || s.deep || !s.glob.literal() {
				path = ""
				break
			}
			path += "/" + s.glob[0]
		}
		if end := strings.LastIndexByte(path, '.'); end < 0 || !slices.Contains(scripts, strings.ToLower(path[end:])) {
			continue
		}
		if !slices.ContainsFunc(c.others().paths, func(p pathPattern) bool { return p.match(path + "/x") }) {
			return path
		}
	}
	return ""
}

var scripts = []string{".php", ".cgi", ".fcgi", ".pl", ".py", ".asp", ".aspx", ".ashx", ".asmx", ".cfm"}

// Pinned reports whether the condition lists the exact values that the attribute may have.
func (c *Condition) Pinned() bool {
	if c.exacts()+len(c.others().paths) == 0 || len(c.others().globs) > 0 {
		return false
	}
	for i := range c.others().paths {
		if a := c.others().paths[i].anchor(); a.how != '|' || strings.Contains(a.text, "*") {
			return false
		}
	}
	return true
}

// Names returns only the names of the attributes, for logs: values may be clients' keys.
func (c Conjunction) Names() string {
	all := make([]string, len(c))
	for i := range c {
		all[i] = c[i].Name
	}
	return strings.Join(all, " and ")
}
