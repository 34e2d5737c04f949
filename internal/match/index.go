package match

import (
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
)

// An Index finds which of many conjunctions may hold for a request without
// trying them all. Each is filed under the one of its conditions that is shared
// with the fewest others; what cannot be filed is always tried.
//
// It finds at least those that hold, and [Index.Holds] tries what is left of one: its
// conditions but the one that it was found by, where the place says all of that.
type Index struct {
	filed  []filed
	always []int32
	paths  [2]*trie // from the beginning, and from the end
	nets   netTable[[]int32]
	values []valueIndex
}

// A filed conjunction is what is left to try when it has been found, and what it
// is for.
type filed struct {
	rest Conjunction
	item int32
}

// A valueIndex files by the value of one Attribute: the whole, its beginning or
// its end. Beginnings and ends are looked up by each length there is.
type valueIndex struct {
	request.Attribute
	exact, prefix, suffix       map[string][]int32
	prefixLengths, suffixLength []int
}

// A trie files by path, segment by segment.
type trie struct {
	kids map[string]*trie
	any  *trie
	here []int32 // patterns that go on from here in ways a trie does not know
	end  []int32 // patterns that end here
}

// An anchor is a place to file a condition at.
type anchor struct {
	request.Attribute
	how  byte // '=' whole, '^' beginning, '$' end, 'n' range, '|' path, '/' beginning of a path, '.' end of one
	text string
	net  netip.Prefix
	path []segment // in the order in which the trie has them
	all  bool      // what is found here holds: nothing of the value is left to try
}

// id identifies an anchor.
type anchorID struct {
	name string
	how  byte
	text string
	net  netip.Prefix
}

func (a *anchor) id() anchorID { return anchorID{a.Name, a.how, a.text, a.net} }

// anchors returns the places of a condition, or nil if it cannot be filed.
func (c *Condition) anchors() []anchor {
	if c.Present || c.Absent || c.Late {
		return nil
	}
	var all []anchor
	for i := range c.paths {
		all = append(all, c.paths[i].anchor())
	}
	if c.nets != nil {
		for p := range c.nets.values {
			all = append(all, anchor{Attribute: c.Attribute, how: 'n', net: p, all: true})
		}
	}
	for v := range c.exact() {
		all = append(all, anchor{Attribute: c.Attribute, how: '=', text: v, all: true})
	}
	for _, g := range c.globs {
		switch last := g[len(g)-1]; {
		case len(last) > len(g[0]):
			all = append(all, anchor{Attribute: c.Attribute, how: '$', text: last, all: len(g) == 2 && g[0] == ""})
		case g[0] != "":
			all = append(all, anchor{Attribute: c.Attribute, how: '^', text: g[0], all: len(g) == 2 && last == ""})
		default:
			return nil
		}
	}
	return all
}

// anchor returns the place of a pattern in the tries: by all of it, else by what is before its
// first ** or behind its last, whichever is longer.
func (p *pathPattern) anchor() anchor {
	n := len(p.segments)
	a := anchorOf('|', p.segments)
	if len(a.path) == n {
		a.all = true
		return a
	}
	a.how, a.all = '/', len(a.path) == n-1 && p.segments[n-1].deep
	tail := slices.Clone(p.segments)
	slices.Reverse(tail)
	behind := slices.IndexFunc(tail, func(s segment) bool { return s.deep })
	if behind < 0 {
		return a
	}
	end := anchorOf('.', tail)
	if len(end.path) < max(len(a.path), 1) {
		return a
	}
	end.all = behind == n-1 && len(end.path) == behind
	return end
}

// anchorOf returns the place of the first segments that a trie can hold.
func anchorOf(how byte, segments []segment) anchor {
	a := anchor{Attribute: request.Of("path"), how: how}
	for _, s := range segments {
		switch {
		case s.any:
			a.text += "/*"
		case s.deep || !s.glob.literal():
			return a
		default:
			a.text += "/" + s.glob[0]
		}
		a.path = append(a.path, s)
	}
	return a
}

// NewIndex files conjunctions; item says what each is for.
func NewIndex(all []Conjunction, item []int32) *Index {
	x := &Index{filed: make([]filed, len(all))}
	shared := make(map[anchorID]int)
	places := make([][][]anchor, len(all))
	for i, conj := range all {
		if i%64 == 63 { // requests are matched meanwhile
			runtime.Gosched()
		}
		for k := range conj {
			as := conj[k].anchors()
			places[i] = append(places[i], as)
			for j := range as {
				shared[as[j].id()]++
			}
		}
	}
	for i := range all {
		if i%64 == 63 {
			runtime.Gosched()
		}
		var best []anchor
		least, at := -1, -1
		for k, as := range places[i] {
			if len(as) == 0 {
				continue
			}
			crowd := 0
			for j := range as {
				crowd = max(crowd, shared[as[j].id()])
			}
			if least < 0 || crowd < least {
				best, least, at = as, crowd, k
			}
		}
		if best == nil {
			x.always = append(x.always, int32(i))
		}
		x.filed[i] = filed{all[i], item[i]}
		if best != nil && !slices.ContainsFunc(best, func(a anchor) bool { return !a.all }) {
			x.filed[i].rest = slices.Concat(all[i][:at], all[i][at+1:])
		}
		for j := range best {
			x.file(&best[j], int32(i))
		}
	}
	return x
}

func (x *Index) file(a *anchor, i int32) {
	switch a.how {
	case 'n':
		x.nets.put(a.net, append(x.nets.values[a.net], i))
		return
	case '|', '/', '.':
		x.filePath(a, i)
		return
	}
	at := slices.IndexFunc(x.values, func(v valueIndex) bool { return v.Name == a.Name })
	if at < 0 {
		at = len(x.values)
		x.values = append(x.values, valueIndex{
			Attribute: a.Attribute,
			exact:     make(map[string][]int32), prefix: make(map[string][]int32), suffix: make(map[string][]int32),
		})
	}
	v := &x.values[at]
	switch a.how {
	case '=':
		v.exact[a.text] = append(v.exact[a.text], i)
	case '^':
		v.prefix[a.text] = append(v.prefix[a.text], i)
		v.prefixLengths = insertSorted(v.prefixLengths, len(a.text))
	case '$':
		v.suffix[a.text] = append(v.suffix[a.text], i)
		v.suffixLength = insertSorted(v.suffixLength, len(a.text))
	}
}

func (x *Index) filePath(a *anchor, i int32) {
	root := &x.paths[0]
	if a.how == '.' {
		root = &x.paths[1]
	}
	if *root == nil {
		*root = &trie{}
	}
	t := *root
	for _, s := range a.path {
		if s.any {
			if t.any == nil {
				t.any = &trie{}
			}
			t = t.any
			continue
		}
		if t.kids == nil {
			t.kids = make(map[string]*trie)
		}
		next := t.kids[s.glob[0]]
		if next == nil {
			next = &trie{}
			t.kids[s.glob[0]] = next
		}
		t = next
	}
	if a.how == '|' {
		t.end = append(t.end, i)
	} else {
		t.here = append(t.here, i)
	}
}

// Holds reports whether a conjunction that Find has found holds, and what it is for.
func (x *Index) Holds(i int32, q *Request) (item int32, ok bool) {
	f := &x.filed[i]
	return f.item, f.rest.Miss(q) == nil
}

// Find returns the indexes of what may hold, in order, each once. It uses the room of
// found.
func (x *Index) Find(q *Request, found []int32) []int32 {
	found = append(found[:0], x.always...)
	if q.hasPath {
		found = x.paths[0].find(q.path[1:], false, found)
		found = x.paths[1].find(q.path[1:], true, found)
	}
	if x.nets.values != nil {
		if addr, ok := q.Addr(); ok {
			for filed := range x.nets.holding(single(addr)) {
				found = append(found, filed...)
			}
		}
	}
	for i := range x.values {
		found = x.values[i].find(q, found)
	}
	if len(found) > 1 {
		slices.Sort(found)
		found = slices.Compact(found)
	}
	return found
}

// find looks a path up, from its end if backwards.
func (t *trie) find(rest string, backwards bool, found []int32) []int32 {
	for t != nil {
		found = append(found, t.here...)
		if rest == "" {
			return append(found, t.end...)
		}
		if t.kids == nil && t.any == nil {
			break
		}
		var seg string
		if backwards {
			i := strings.LastIndexByte(rest, '/')
			seg, rest = rest[i+1:], rest[:max(i, 0)]
		} else {
			seg, rest = cutSegment(rest)
		}
		if t.any != nil {
			found = t.any.find(rest, backwards, found)
		}
		t = t.kids[seg]
	}
	return found
}

func (v *valueIndex) find(q *Request, found []int32) []int32 {
	s, ok := q.Value(v.Attribute)
	if !ok {
		return found
	}
	found = append(found, v.exact[s]...)
	for _, n := range v.prefixLengths {
		if n > len(s) {
			break
		}
		found = append(found, v.prefix[s[:n]]...)
	}
	for _, n := range v.suffixLength {
		if n > len(s) {
			break
		}
		found = append(found, v.suffix[s[len(s)-n:]]...)
	}
	return found
}

// insertSorted returns the sorted list with n in it.
func insertSorted(list []int, n int) []int {
	i, have := slices.BinarySearch(list, n)
	if have {
		return list
	}
	return slices.Insert(list, i, n)
}
