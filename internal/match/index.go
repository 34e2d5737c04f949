package match

import (
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/request"
)

// An Index finds, among many conjunctions, those that may hold for a request, without trying them
// all. Each conjunction is filed under the condition that it shares with the fewest others. If a
// condition on an attribute that more conjunctions name does nearly as well, that one is taken, since
// each lookup reads every attribute under which a conjunction is filed. Conjunctions that cannot be
// filed are always tried.
//
// [Index.Find] returns at least all conjunctions that hold. [Index.Holds] tries the remaining
// conditions of one of them. It leaves out the condition under which the conjunction is filed if the
// lookup has decided that condition completely.
type Index struct {
	filed  []filed
	always []int32
	paths  [2]*trie // from the beginning of paths, and from their end
	nets   netTable[[]int32]
	values []valueIndex
	places map[string]int // in values, by the name of the attribute
}

// A filed is a conjunction in an Index.
type filed struct {
	all   Conjunction
	found int32 // the condition that the lookup has decided; -1 for none
	item  int32
}

// A valueIndex files conjunctions by the value of one Attribute: the exact value, its beginning or
// its end. It looks up beginnings and ends of each length that occurs.
type valueIndex struct {
	request.Attribute
	exact, prefix, suffix       map[string][]int32
	prefixLengths, suffixLength []int
}

// A trie files conjunctions by path, segment by segment.
type trie struct {
	kids map[string]*trie
	any  *trie
	here []int32 // patterns that continue here with segments that a trie cannot hold
	end  []int32 // patterns that end here
}

// An anchor is a key under which a condition is filed.
type anchor struct {
	request.Attribute
	how  byte // '=' exact value, '^' beginning, '$' end, 'n' range, '|' path, '/' beginning of a path, '.' end of a path
	text string
	net  netip.Prefix
	path []segment // in the order of the trie
	all  bool      // the lookup decides the condition completely
}

type anchorID struct {
	name string
	how  byte
	text string
	net  netip.Prefix
}

func (a *anchor) id() anchorID { return anchorID{a.Name, a.how, a.text, a.net} }

// anchors returns the anchors of a condition, or nil if it cannot be filed.
func (c *Condition) anchors() []anchor {
	if c.Present || c.Absent || c.Late {
		return nil
	}
	var all []anchor
	others := c.others()
	for i := range others.paths {
		all = append(all, others.paths[i].anchor())
	}
	if others.nets != nil {
		for p := range others.nets.values {
			all = append(all, anchor{Attribute: c.Attribute, how: 'n', net: p, all: true})
		}
	}
	for v := range c.exact() {
		all = append(all, anchor{Attribute: c.Attribute, how: '=', text: v, all: true})
	}
	for _, g := range others.globs {
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

// anchor returns the anchor of a pattern in the tries: all of it, or the segments before its first
// ** or after its last **, whichever are more.
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

// anchorOf returns the anchor of the first segments that a trie can hold.
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

// NewIndex files conjunctions; item has the item of each.
func NewIndex(all []Conjunction, item []int32) *Index {
	x := &Index{filed: make([]filed, len(all))}
	shared, common := make(map[anchorID]int), make(map[string]int) // how often an anchor, and an attribute, occurs
	for i, conj := range all {
		if i%64 == 63 { // lets requests be matched meanwhile
			runtime.Gosched()
		}
		for k := range conj {
			common[conj[k].Name]++
			for _, a := range conj[k].anchors() {
				shared[a.id()]++
			}
		}
	}
	for i, conj := range all {
		if i%64 == 63 {
			runtime.Gosched()
		}
		var best []anchor
		least, at := -1, -1
		for k := range conj {
			as := conj[k].anchors() // made again, since to keep all of them would take more memory than the index
			if len(as) == 0 {
				continue
			}
			crowd := 0
			for j := range as {
				crowd = max(crowd, shared[as[j].id()])
			}
			crowd += len(all) / common[conj[k].Name] // how many attributes a lookup would read if all were filed like this one
			if least < 0 || crowd < least {
				best, least, at = as, crowd, k
			}
		}
		if best == nil {
			x.always = append(x.always, int32(i))
		}
		x.filed[i] = filed{conj, -1, item[i]}
		if best != nil && !slices.ContainsFunc(best, func(a anchor) bool { return !a.all }) {
			x.filed[i].found = int32(at)
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
	at, known := x.places[a.Name]
	if !known {
		if at = len(x.values); at == 0 {
			x.places = make(map[string]int)
		}
		x.places[a.Name] = at
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

// Holds reports whether a conjunction that Find has returned holds, and returns its item.
func (x *Index) Holds(i int32, q *Request) (item int32, ok bool) {
	f := &x.filed[i]
	for k := range f.all {
		if int32(k) != f.found && !f.all[k].Match(q) {
			return f.item, false
		}
	}
	return f.item, true
}

// Find returns the indexes of the conjunctions that may hold, in order, each once. It reuses the
// memory of found.
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

// find looks up a path, from its end if backwards is true.
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

func insertSorted(list []int, n int) []int {
	i, have := slices.BinarySearch(list, n)
	if have {
		return list
	}
	return slices.Insert(list, i, n)
}
