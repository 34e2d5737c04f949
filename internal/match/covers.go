package match

import (
	"slices"
	"strings"
)

// Covers reports whether every request for which narrow holds is surely one for
// which c holds.
func (c Conjunction) Covers(narrow Conjunction) bool {
	for i := range c {
		if !slices.ContainsFunc(narrow, func(n Condition) bool { return c[i].Name == n.Name && c[i].covers(&n) }) {
			return false
		}
	}
	return true
}

// covers reports whether every value of o is surely one of c.
func (c *Condition) covers(o *Condition) bool {
	switch {
	case c.Absent || o.Absent:
		return c.Absent && o.Absent
	case o.Present:
		return c.Present
	case c.Present:
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
	if o.nets != nil {
		for p := range o.nets.values {
			if c.nets == nil || !c.nets.has(p) {
				return false
			}
		}
	}
	return true
}

func anyGlob(globs []glob, s string) bool {
	for _, g := range globs { // on the way of each request: no call by a pointer
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

// Script returns a path of the condition that looks like that of a script, such as
// /login.php, if the condition does not hold for paths below it, which servers such as
// Apache hand to the same script (PATH_INFO); else nothing.
func (c *Condition) Script() (path string) {
	for i := range min(len(c.paths), 64) { // each is compared with all
		path = ""
		for _, s := range c.paths[i].segments {
			if s.any || s.deep || !s.glob.literal() {
				path = ""
				break
			}
			path += "/" + s.glob[0]
		}
		if end := strings.LastIndexByte(path, '.'); end < 0 || !slices.Contains(scripts, strings.ToLower(path[end:])) {
			continue
		}
		if !slices.ContainsFunc(c.paths, func(p pathPattern) bool { return p.match(path + "/x") }) {
			return path
		}
	}
	return ""
}

var scripts = []string{".php", ".cgi", ".fcgi", ".pl", ".py", ".asp", ".aspx", ".ashx", ".asmx", ".cfm"}

// Pinned reports whether the condition names the values that the attribute may
// have, one by one.
func (c *Condition) Pinned() bool {
	if c.exacts()+len(c.paths) == 0 || len(c.globs) > 0 {
		return false
	}
	for i := range c.paths {
		if a := c.paths[i].anchor(); a.how != '|' || strings.Contains(a.text, "*") {
			return false
		}
	}
	return true
}

// Names returns the attributes alone: values may be clients' keys, and warnings
// go into logs.
func (c Conjunction) Names() string {
	all := make([]string, len(c))
	for i := range c {
		all[i] = c[i].Name
	}
	return strings.Join(all, " and ")
}
