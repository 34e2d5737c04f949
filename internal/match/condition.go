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

// A Condition says what one attribute must be: any of its values.
//
// It is small because a request that is matched against thousands of rules finds none of them in
// the processor's cache.
type Condition struct {
	request.Attribute
	Present bool     // any value that is not empty
	Absent  bool     // no value, or an empty one
	Late    bool     // tried after all other conditions; an Index does not look it up
	few     []string // exact values, while there are few
	more    *more    // nil if there are no other values
	Texts   []string // the values as they were written, or the first of them
}

// A more is the values of a condition that are not in few.
type more struct {
	many  map[string]struct{} // exact values
	globs []glob
	paths []pathPattern
	nets  *netTable[struct{}]
}

var noMore more

// others returns the values that are not in few, for reading.
func (c *Condition) others() *more {
	if c.more == nil {
		return &noMore
	}
	return c.more
}

// add returns the values that are not in few, for adding to them.
func (c *Condition) add() *more {
	if c.more == nil {
		c.more = new(more)
	}
	return c.more
}

// fewValues is the most exact values that are compared one by one. More go into a map.
const fewValues = 8

func (c *Condition) addExact(v string) {
	if many := c.others().many; many != nil {
		many[v] = struct{}{}
		return
	}
	if slices.Contains(c.few, v) {
		return
	}
	if c.few = append(c.few, v); len(c.few) > fewValues {
		many := make(map[string]struct{})
		for _, v := range c.few {
			many[v] = struct{}{}
		}
		c.few, c.add().many = nil, many
	}
}

func (c *Condition) isExact(v string) bool {
	if many := c.others().many; many != nil {
		_, ok := many[v]
		return ok
	}
	return slices.Contains(c.few, v)
}

func (c *Condition) exact() iter.Seq[string] {
	if many := c.others().many; many != nil {
		return maps.Keys(many)
	}
	return slices.Values(c.few)
}

func (c *Condition) exacts() int { return max(len(c.few), len(c.others().many)) }

// Match reports whether a request meets the condition.
func (c *Condition) Match(q *Request) bool {
	others := c.others()
	if others.nets != nil { // ranges need no text
		addr, ok := q.Addr()
		return ok && others.nets.has(single(addr))
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
	for i := range others.paths {
		if others.paths[i].match(v) {
			return true
		}
	}
	return anyGlob(others.globs, v)
}

// A Conjunction is conditions that must all be met.
type Conjunction []Condition

// Miss returns the first condition that is not met, or nil.
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

// Add adds a value as it is written. reason and hint are empty if the value is valid.
func (c *Condition) Add(text string) (reason, hint string) {
	switch c.Kind {
	case request.Path:
		p, reason, hint := parsePath(text)
		if reason == "" {
			c.add().paths = append(c.add().paths, p)
		}
		return reason, hint
	case request.IP:
		p, reason, hint := ParseNet(text)
		if reason == "" {
			if c.add().nets == nil {
				c.more.nets = &netTable[struct{}]{}
			}
			c.more.nets.put(p, struct{}{})
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
		c.add().globs = append(c.add().globs, g)
		return "", ""
	}
	c.addExact(g[0])
	if c.Kind == request.Method && text == "GET" {
		c.addExact("HEAD") // servers answer HEAD with the same work
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

// Want returns the text of what the condition asks for.
func (c *Condition) Want() string {
	switch {
	case c.Present:
		return "present"
	case c.Absent:
		return "absent"
	}
	return "is " + strings.Join(c.Texts, ", ")
}

// A glob is the texts between the stars of a pattern; without stars it is one text. Each star
// stands for any text, also the empty one.
type glob []string

// parseGlob parses a pattern in which \* is a star and \\ a backslash.
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

type pathPattern struct {
	segments []segment
}

type segment struct {
	glob glob // a literal is a glob of one text
	any  bool // * or {name}: one segment
	deep bool // ** or {name...}: any number of segments
}

func (s *segment) match(seg string) bool { return s.any || s.glob.match(seg) }

// isHostPattern reports whether a pattern can match a clean host.
func isHostPattern(text string) bool {
	text = strings.ReplaceAll(text, "*", "x")
	clean, reason := CleanHost(text)
	return reason == "" && text != "" && strings.EqualFold(text, clean)
}

// match reports whether the whole path matches. It backtracks only to the last ** that it has met,
// since everything before that ** was matched as early as possible.
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

// parsePath parses a path pattern. reason and hint are empty if it is valid.
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
		case seg == "**", braces && closed && (strings.HasSuffix(name, "...") || strings.HasPrefix(name, "*")):
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

// A netTable maps address ranges to values. It looks ranges up by each length that occurs.
type netTable[T any] struct {
	bits   [2][]int // lengths that occur, for IPv4 and IPv6
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

// holding returns the values of the ranges that contain p, the widest range first.
func (t *netTable[T]) holding(p netip.Prefix) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, n := range t.bits[family(p.Addr())] {
			if n > p.Bits() {
				return
			}
			wide, _ := p.Addr().Prefix(n) // no error, since n is at most the length of p
			if v, ok := t.values[wide]; ok && !yield(v) {
				return
			}
		}
	}
}

func (t *netTable[T]) has(p netip.Prefix) bool {
	for range t.holding(p) {
		return true
	}
	return false
}

// ParseNet parses an address or a range; the bits after its length must be 0. If it fails, reason
// and hint say why, and what would be right.
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
