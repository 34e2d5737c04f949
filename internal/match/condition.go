package match

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
)

// A Condition is what one attribute must be: any of its values.
//
// It is kept small: a request that meets one of thousands of rules finds none of
// it in the processor's cache.
type Condition struct {
	request.Attribute
	Present bool     // must be there and not empty, whatever it is
	Absent  bool     // must not be there, or be empty
	Late    bool     // is tried when all else holds: an Index does not look it up
	few     []string // whole values, if there are few
	many    map[string]struct{}
	globs   []glob
	paths   []pathPattern
	nets    *netTable[struct{}]
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
	if c.nets != nil { // its text is not needed
		addr, ok := q.Addr()
		return ok && c.nets.has(single(addr))
	}
	v, ok := q.Value(c.Attribute)
	switch {
	case c.Present:
		return ok && v != ""
	case c.Absent:
		return !ok || v == ""
	case !ok:
		return false
	case c.isExact(v):
		return true
	}
	for i := range c.paths {
		if c.paths[i].match(v) {
			return true
		}
	}
	return anyGlob(c.globs, v)
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
	switch c.Kind {
	case request.Path:
		p, reason, hint := parsePath(text)
		if reason == "" {
			c.paths = append(c.paths, p)
		}
		return reason, hint
	case request.IP:
		p, reason, hint := ParseNet(text)
		if reason == "" {
			if c.nets == nil {
				c.nets = &netTable[struct{}]{}
			}
			c.nets.put(p, struct{}{})
		}
		return reason, hint
	case request.Method:
		text = strings.ToUpper(text)
		if strings.ContainsFunc(text, func(c rune) bool { return c != '-' && c != '*' && (c < 'A' || c > 'Z') }) || text == "" {
			return "no method", "such as GET or POST"
		}
	case request.Host:
		if !isHostPattern(text) {
			return "no host", "a name without port or scheme, such as api.example.com or *.example.com"
		}
		text = strings.ToLower(text)
	case request.Authorization:
		text = credentials(text)
	}
	g := parseGlob(text)
	if !g.literal() {
		c.globs = append(c.globs, g)
		return "", ""
	}
	c.addExact(g[0])
	if c.Kind == request.Method && text == "GET" {
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

// A pathPattern is segments to match a clean path with.
type pathPattern struct {
	segments []segment
}

type segment struct {
	glob glob // of a literal, one part
	any  bool // * or {name}: one segment, whatever it is
	deep bool // ** or {name...}: any number of segments
}

func (s *segment) match(seg string) bool { return s.any || s.glob.match(seg) }

// isHostPattern reports whether text can fit a clean host, with stars in it.
func isHostPattern(text string) bool {
	text = strings.ReplaceAll(text, "*", "x")
	clean, reason := CleanHost(text)
	return reason == "" && text != "" && strings.EqualFold(text, clean)
}

// match reports whether the whole path fits. Only the last ** met ever needs to
// take more: what came before it has been matched as early as possible.
func (p *pathPattern) match(path string) bool {
	rest, again := path[1:], ""
	i, star := 0, -1
	for {
		if i < len(p.segments) && p.segments[i].deep {
			star, again = i, rest
			i++
			continue
		}
		if rest == "" {
			break
		}
		seg, next := cutSegment(rest)
		switch {
		case i < len(p.segments) && p.segments[i].match(seg):
			i, rest = i+1, next
		case star >= 0:
			_, again = cutSegment(again)
			i, rest = star+1, again
		default:
			return false
		}
	}
	return i == len(p.segments)
}

// parsePath reads a path pattern; reason and hint are empty if it is good.
func parsePath(text string) (p pathPattern, reason, hint string) {
	if !strings.HasPrefix(text, "/") {
		return p, "a path pattern must begin with a slash", "such as /api/**, /users/{id} or /**"
	}
	if i := strings.IndexAny(text, "%\\;?#"); i >= 0 {
		return p, "a path pattern cannot hold " + text[i:i+1],
			"patterns are written decoded, and match the path alone: a query is matched as query.NAME"
	}
	for rest := strings.TrimSuffix(text[1:], "/"); rest != ""; {
		var seg string
		seg, rest = cutSegment(rest)
		name, braces := strings.CutPrefix(seg, "{")
		name, closed := strings.CutSuffix(name, "}")
		switch {
		case seg == "" || seg == "." || seg == "..":
			return p, "a path pattern cannot have empty or dot segments", "paths are cleaned before they are matched"
		case seg == "**", braces && closed && strings.HasSuffix(name, "..."):
			p.segments = append(p.segments, segment{deep: true})
		case seg == "*", braces && closed && !strings.ContainsAny(name, "{}"):
			p.segments = append(p.segments, segment{any: true})
		case strings.ContainsAny(seg, "{}"):
			return p, "braces in a path pattern stand for a whole segment", "such as /users/{id} or /files/*.png"
		case strings.Contains(seg, "**"):
			return p, "** in a path pattern stands for whole segments", "such as /api/** or /**/edit"
		default:
			p.segments = append(p.segments, segment{glob: strings.Split(seg, "*")})
		}
	}
	return p, "", ""
}

// A netTable has a value for each of many address ranges, found by their lengths.
type netTable[T any] struct {
	bits   [2][]int // lengths there are, of IPv4 and IPv6
	values map[netip.Prefix]T
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func (t *netTable[T]) put(p netip.Prefix, value T) {
	if t.values == nil {
		t.values = make(map[netip.Prefix]T)
	}
	t.values[p] = value
	t.bits[family(p.Addr())] = insertSorted(t.bits[family(p.Addr())], p.Bits())
}

// holding returns the values of the ranges that p is in, those of the widest first.
func (t *netTable[T]) holding(p netip.Prefix) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, n := range t.bits[family(p.Addr())] {
			if n > p.Bits() {
				return
			}
			wide, _ := p.Addr().Prefix(n) // it has as many bits
			if v, ok := t.values[wide]; ok && !yield(v) {
				return
			}
		}
	}
}

// has reports whether p is in one of the ranges.
func (t *netTable[T]) has(p netip.Prefix) bool {
	for range t.holding(p) {
		return true
	}
	return false
}

// ParseNet reads an address or a range; the bits behind its length must be 0. If
// it is none, the reason and a hint say why and what would be right.
func ParseNet(text string) (p netip.Prefix, reason, hint string) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return p, "no address", "such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32"
		}
		a = a.Unmap()
		return single(a), "", ""
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, "no address range", "such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32"
	case p.Addr().Is4In6():
		return p, "an IPv4 range written as IPv6", "addresses are unmapped first: write it as IPv4"
	case p != p.Masked():
		return p, "the address has bits behind the length of the range", "did you mean " + p.Masked().String() + "?"
	}
	return p, "", ""
}
