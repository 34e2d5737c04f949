package match

import (
	"net/netip"
	"runtime"
	"slices"
)

// An Index finds which of many conjunctions may hold for a request without
// trying them all. Each is filed under the one of its conditions that is shared
// with the fewest others; what cannot be filed is always tried.
//
// It finds at least those that hold; the caller tries them in full.
type Index struct {
	always []int32
	paths  *trie
	nets   map[netip.Prefix][]int32
	bits   [2][]int // lengths in nets, of IPv4 and IPv6
	values []valueIndex
}

// A valueIndex files by the value of one Attribute: the whole, its beginning or
// its end. Beginnings and ends are looked up by each length there is.
type valueIndex struct {
	Attribute
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
	Attribute
	how  byte // '=' whole, '^' beginning, '$' end, 'n' range, '|' path, '/' beginning of a path
	text string
	net  netip.Prefix
	path []segment
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
	if c.Present || c.Absent {
		return nil
	}
	var all []anchor
	for i := range c.paths {
		all = append(all, c.paths[i].anchor())
	}
	if c.nets != nil {
		for p := range c.nets.nets {
			all = append(all, anchor{Attribute: c.Attribute, how: 'n', net: p})
		}
	}
	for v := range c.exact() {
		all = append(all, anchor{Attribute: c.Attribute, how: '=', text: v})
	}
	for _, g := range c.globs {
		switch last := g[len(g)-1]; {
		case len(last) > len(g[0]):
			all = append(all, anchor{Attribute: c.Attribute, how: '$', text: last})
		case g[0] != "":
			all = append(all, anchor{Attribute: c.Attribute, how: '^', text: g[0]})
		default:
			return nil
		}
	}
	return all
}

// anchor returns the place of a pattern in the trie.
func (p *pathPattern) anchor() anchor {
	a := anchor{Attribute: Attribute{"path", Path}, how: '|'}
	for _, s := range p.segments {
		switch {
		case s.any:
			a.text += "/*"
		case s.deep || !s.glob.literal():
			a.how = '/'
			return a
		default:
			a.text += "/" + s.glob[0]
		}
		a.path = append(a.path, s)
	}
	return a
}

// NewIndex files conjunctions; item says what Find returns for each.
func NewIndex(all []Conjunction, item []int32) *Index {
	x := &Index{}
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
		least := -1
		for _, as := range places[i] {
			if len(as) == 0 {
				continue
			}
			crowd := 0
			for j := range as {
				crowd = max(crowd, shared[as[j].id()])
			}
			if least < 0 || crowd < least {
				best, least = as, crowd
			}
		}
		if best == nil {
			x.always = append(x.always, item[i])
		}
		for j := range best {
			x.file(&best[j], item[i])
		}
	}
	return x
}

func (x *Index) file(a *anchor, item int32) {
	switch a.how {
	case 'n':
		if x.nets == nil {
			x.nets = make(map[netip.Prefix][]int32)
		}
		x.nets[a.net] = append(x.nets[a.net], item)
		x.bits[family(a.net.Addr())] = insertSorted(x.bits[family(a.net.Addr())], a.net.Bits())
		return
	case '|', '/':
		x.filePath(a, item)
		return
	}
	i := slices.IndexFunc(x.values, func(v valueIndex) bool { return v.Name == a.Name })
	if i < 0 {
		i = len(x.values)
		x.values = append(x.values, valueIndex{
			Attribute: a.Attribute,
			exact:     make(map[string][]int32), prefix: make(map[string][]int32), suffix: make(map[string][]int32),
		})
	}
	v := &x.values[i]
	switch a.how {
	case '=':
		v.exact[a.text] = append(v.exact[a.text], item)
	case '^':
		v.prefix[a.text] = append(v.prefix[a.text], item)
		v.prefixLengths = insertSorted(v.prefixLengths, len(a.text))
	case '$':
		v.suffix[a.text] = append(v.suffix[a.text], item)
		v.suffixLength = insertSorted(v.suffixLength, len(a.text))
	}
}

func (x *Index) filePath(a *anchor, item int32) {
	if x.paths == nil {
		x.paths = &trie{}
	}
	t := x.paths
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
		t.end = append(t.end, item)
	} else {
		t.here = append(t.here, item)
	}
}

// Find appends what may hold, in order, each once.
func (x *Index) Find(q *Request, found []int32) []int32 {
	start := len(found)
	found = append(found, x.always...)
	if x.paths != nil && q.hasPath {
		found = x.paths.find(q.path[1:], found)
	}
	if x.nets != nil {
		if addr, ok := q.Addr(); ok {
			for _, n := range x.bits[family(addr)] {
				if p, err := addr.Prefix(n); err == nil {
					found = append(found, x.nets[p]...)
				}
			}
		}
	}
	for i := range x.values {
		found = x.values[i].find(q, found)
	}
	if len(found)-start > 1 {
		slices.Sort(found[start:])
		found = found[:start+len(slices.Compact(found[start:]))]
	}
	return found
}

func (t *trie) find(rest string, found []int32) []int32 {
	found = append(found, t.here...)
	if rest == "" {
		return append(found, t.end...)
	}
	seg, rest := cutSegment(rest)
	if kid := t.kids[seg]; kid != nil {
		found = kid.find(rest, found)
	}
	if t.any != nil {
		found = t.any.find(rest, found)
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
