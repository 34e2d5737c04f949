package match

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// A Condition is what one attribute must be: any of its values.
//
// It is kept small: a request that meets one of thousands of rules finds none of
// it in the processor's cache.
type Condition struct {
	Attribute
	Present bool     // must be there and not empty, whatever it is
	Absent  bool     // must not be there, or be empty
	few     []string // whole values, if there are few
	many    map[string]struct{}
	globs   []glob
	paths   []pathPattern
	nets    *netSet
	Text    string // as written, for people
}

// fewValues is up to how many values are compared one by one.
const fewValues = 8

// addExact adds a whole value.
func (c *Condition) addExact(v string) {
	if c.many != nil {
		c.many[v] = struct{}{}
		return
	}
	if slices.Contains(c.few, v) {
		return
	}
	if c.few = append(c.few, v); len(c.few) > fewValues {
		c.many = make(map[string]struct{})
		for _, v := range c.few {
			c.many[v] = struct{}{}
		}
		c.few = nil
	}
}

// isExact reports whether v is one of the whole values.
func (c *Condition) isExact(v string) bool {
	if c.many != nil {
		_, ok := c.many[v]
		return ok
	}
	return slices.Contains(c.few, v)
}

// exact returns the whole values.
func (c *Condition) exact() iter.Seq[string] {
	if c.many != nil {
		return maps.Keys(c.many)
	}
	return slices.Values(c.few)
}

// exacts returns how many whole values there are.
func (c *Condition) exacts() int { return max(len(c.few), len(c.many)) }

// Match reports whether the attribute of a request is what it must be.
func (c *Condition) Match(q *Request) bool {
	if c.Field == IP && !c.Present && !c.Absent {
		addr, ok := q.Addr()
		return ok && c.nets != nil && c.nets.has(addr)
	}
	v, ok := q.Value(c.Attribute)
	switch {
	case c.Present:
		return ok && v != ""
	case c.Absent:
		return !ok || v == ""
	case !ok:
		return false
	}
	if c.Field == Path {
		for i := range c.paths {
			if c.paths[i].match(v) {
				return true
			}
		}
		return false
	}
	if c.isExact(v) {
		return true
	}
	for _, g := range c.globs {
		if g.match(v) {
			return true
		}
	}
	return false
}

// A Conjunction is conditions that must all hold.
type Conjunction []Condition

// Miss returns the first condition that does not hold, or nil.
func (c Conjunction) Miss(q *Request) *Condition {
	for i := range c {
		if !c[i].Match(q) {
			return &c[i]
		}
	}
	return nil
}

// AnyOf reports whether one of the conjunctions holds.
func AnyOf(all []Conjunction, q *Request) bool {
	for _, c := range all {
		if c.Miss(q) == nil {
			return true
		}
	}
	return false
}

// Add adds a value as written; reason and hint are empty if it is good.
func (c *Condition) Add(text string) (reason, hint string) {
	switch c.Field {
	case Path:
		p, reason, hint := parsePath(text)
		if reason == "" {
			c.paths = append(c.paths, p)
		}
		return reason, hint
	case IP:
		p, reason, hint := ParseNet(text)
		if reason == "" {
			if c.nets == nil {
				c.nets = &netSet{}
			}
			c.nets.add(p)
		}
		return reason, hint
	case Method:
		text = strings.ToUpper(text)
		if strings.ContainsFunc(text, func(c rune) bool { return c != '-' && c != '*' && (c < 'A' || c > 'Z') }) || text == "" {
			return "no method", "such as GET or POST"
		}
	case Host:
		if !isHostPattern(text) {
			return "no host", "a name without port or scheme, such as api.example.com or *.example.com"
		}
		text = strings.ToLower(text)
	}
	g := parseGlob(text)
	if !g.literal() {
		c.globs = append(c.globs, g)
		return "", ""
	}
	c.addExact(g[0])
	if c.Field == Method && text == "GET" {
		c.addExact("HEAD") // which servers answer by the same work
	}
	return "", ""
}

// String returns the conjunction as text, for people.
func (c Conjunction) String() string {
	var parts []string
	for i := range c {
		parts = append(parts, fmt.Sprintf("%s %s", c[i].Name, c[i].Want()))
	}
	return strings.Join(parts, " and ")
}

// Want returns what a condition asks for.
func (c *Condition) Want() string {
	switch {
	case c.Present:
		return "present"
	case c.Absent:
		return "absent"
	}
	return "is " + c.Text
}

// A glob is what lies between the stars of a pattern: one part if there are
// none. Each star stands for any text, the empty one included.
type glob []string

// parseGlob reads a pattern in which \* is a star and \\ a backslash.
func parseGlob(text string) glob {
	if !strings.ContainsRune(text, '\\') {
		return strings.Split(text, "*")
	}
	var g glob
	var part []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text) && (text[i+1] == '*' || text[i+1] == '\\'):
			i++
			part = append(part, text[i])
		case c == '*':
			g = append(g, string(part))
			part = nil
		default:
			part = append(part, c)
		}
	}
	return append(g, string(part))
}

// literal reports whether the glob has no star.
func (g glob) literal() bool { return len(g) == 1 }

func (g glob) match(s string) bool {
	if len(g) == 1 {
		return s == g[0]
	}
	last := len(g) - 1
	if len(s) < len(g[0])+len(g[last]) || !strings.HasPrefix(s, g[0]) || !strings.HasSuffix(s, g[last]) {
		return false
	}
	s = s[len(g[0]) : len(s)-len(g[last])]
	for _, part := range g[1:last] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}
