package envoyrules

import (
	"slices"
	"sort"
	"strings"
)

// siblings are the descriptors of one key on one level.
type siblings struct {
	level         []*descriptor // the whole level
	exacts, stars sides         // the descriptors with a value without stars, and with them
}

// siblingsOf returns the siblings of each key; nil for a level of one descriptor.
func siblingsOf(level []*descriptor) map[string]*siblings {
	if len(level) < 2 {
		return nil
	}
	all := map[string]*siblings{}
	for i, d := range level {
		s := all[d.key]
		if s == nil {
			s = &siblings{level: level}
			all[d.key] = s
		}
		switch {
		case d.star():
			s.stars.add(d, i)
		case d.value != "":
			s.exacts.add(d, i)
		}
	}
	for _, s := range all {
		s.exacts.sort()
		s.stars.sort()
	}
	return all
}

// A part is the text that a value begins or ends with, as far as it has no star, and the index of its
// descriptor on the level.
type part struct {
	text string
	i    int
}

// parts are sorted by their texts. Shorter has for each how many of those before it begin it, and
// the last of them, -1 for none.
type parts struct {
	all     []part
	shorter []struct{ count, last int }
}

// sides are how values begin and, in reverse, how they end: of many that begin alike, few may end
// alike.
type sides [2]parts

// ends returns the text before the first star, and in reverse the one after the last.
func (d *descriptor) ends() [2]string {
	first, _, _ := strings.Cut(d.value, "*")
	last := []byte(d.value[strings.LastIndexByte(d.value, '*')+1:])
	slices.Reverse(last)
	return [2]string{first, string(last)}
}

func (s *sides) add(d *descriptor, i int) {
	for side, text := range d.ends() {
		s[side].all = append(s[side].all, part{text, i})
	}
}

func (s *sides) sort() {
	for side := range s {
		p := &s[side]
		slices.SortStableFunc(p.all, func(a, b part) int { return strings.Compare(a.text, b.text) })
		p.shorter = make([]struct{ count, last int }, len(p.all))
		for i, one := range p.all {
			last := i - 1
			for last >= 0 && !strings.HasPrefix(one.text, p.all[last].text) {
				last = p.shorter[last].last
			}
			if p.shorter[i].last = last; last >= 0 {
				p.shorter[i].count = p.shorter[last].count + 1
			}
		}
	}
}

// near returns the indexes of the values that begin, or of those that end, as d does, of whichever
// there are fewer. With shorter, for values that d is one of, d may also begin or end as they do.
func (s *sides) near(d *descriptor, shorter bool) (all []int) {
	var of *parts
	var first, end, least int
	for side, text := range d.ends() {
		p := &s[side]
		from := sort.Search(len(p.all), func(i int) bool { return p.all[i].text >= text })
		to := from + sort.Search(len(p.all)-from, func(n int) bool { return !strings.HasPrefix(p.all[from+n].text, text) })
		count := to - from
		if shorter {
			count += p.shorter[from].count
		}
		if of == nil || count < least {
			of, first, end, least = p, from, to, count
		}
	}
	all = make([]int, 0, least)
	for _, one := range of.all[first:end] {
		all = append(all, one.i)
	}
	if shorter {
		for k := of.shorter[first].last; k >= 0; k = of.shorter[k].last {
			all = append(all, of.all[k].i)
		}
	}
	return all
}

// before returns the indexes of the descriptors with stars that come before level[i], which has stars
// too, and may take a value that it takes: how one begins begins the other, and so with the ends.
func (s *siblings) before(i int) (all []int) {
	if s == nil {
		return nil
	}
	for _, k := range s.stars.near(s.level[i], true) {
		if k < i && s.level[k].meets(s.level[i]) {
			all = append(all, k)
		}
	}
	slices.Sort(all)
	return all
}

// meets reports whether a value may have the texts before the first stars of both, and those behind
// the last.
func (d *descriptor) meets(o *descriptor) bool {
	a, _, _ := strings.Cut(d.value, "*")
	b, _, _ := strings.Cut(o.value, "*")
	if !strings.HasPrefix(a, b) && !strings.HasPrefix(b, a) {
		return false
	}
	a, b = d.value[strings.LastIndexByte(d.value, '*')+1:], o.value[strings.LastIndexByte(o.value, '*')+1:]
	return strings.HasSuffix(a, b) || strings.HasSuffix(b, a)
}

// taken returns the values that siblings take before level[i]: first come those with an exact
// value, then those with stars in their order, and last the one without a value.
func (s *siblings) taken(i int, d *descriptor) (values []string) {
	switch {
	case s == nil || d.value != "" && !d.star():
	case d.value == "":
		for _, one := range slices.Concat(s.exacts[0].all, s.stars[0].all) {
			values = append(values, s.level[one.i].pattern())
		}
	default:
		for _, k := range s.exacts.near(d, false) {
			if d.takes(s.level[k].value) {
				values = append(values, s.level[k].pattern())
			}
		}
		for _, k := range s.before(i) {
			values = append(values, s.level[k].pattern())
		}
	}
	return values
}
