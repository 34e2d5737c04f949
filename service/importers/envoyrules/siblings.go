package envoyrules

import (
	"slices"
	"sort"
	"strings"
)

// siblings are the descriptors of one key on one level.
type siblings struct {
	level  []*descriptor // the whole level
	exacts []*descriptor // the descriptors with a value without stars, sorted by it
	stars  []int         // indexes of the descriptors with stars, sorted by the text before the first star
	texts  []string      // that text, for each of stars
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
			s.stars = append(s.stars, i)
		case d.value != "":
			s.exacts = append(s.exacts, d)
		}
	}
	for _, s := range all {
		slices.SortFunc(s.exacts, func(a, b *descriptor) int { return strings.Compare(a.value, b.value) })
		slices.SortStableFunc(s.stars, func(a, b int) int { return strings.Compare(level[a].begins(), level[b].begins()) })
		for _, i := range s.stars {
			s.texts = append(s.texts, level[i].begins())
		}
	}
	return all
}

// begins returns the text before the first star.
func (d *descriptor) begins() string {
	text, _, _ := strings.Cut(d.value, "*")
	return text
}

// meets reports whether a value may have the texts behind the last stars of both.
func (d *descriptor) meets(o *descriptor) bool {
	a, b := d.value[strings.LastIndexByte(d.value, '*')+1:], o.value[strings.LastIndexByte(o.value, '*')+1:]
	return strings.HasSuffix(a, b) || strings.HasSuffix(b, a)
}

// near returns the indexes of the descriptors with stars that may take a value that d, with
// stars too, takes: the text before the first star of one begins that of the other.
func (s *siblings) near(d *descriptor) (all []int) {
	if s == nil {
		return nil
	}
	text := d.begins()
	from := sort.SearchStrings(s.texts, text)
	for i := from; i < len(s.texts) && strings.HasPrefix(s.texts[i], text); i++ {
		all = append(all, s.stars[i])
	}
	for n := range len(text) {
		for i := sort.SearchStrings(s.texts, text[:n]); i < len(s.texts) && s.texts[i] == text[:n]; i++ {
			all = append(all, s.stars[i])
		}
	}
	slices.Sort(all)
	return all
}

// taken returns the values that siblings take before level[i]: first come those with an exact
// value, then those with stars in their order, and last the one without a value.
func (s *siblings) taken(i int, d *descriptor) (values []string) {
	if s == nil || d.value != "" && !d.star() {
		return nil
	}
	from := sort.Search(len(s.exacts), func(k int) bool { return s.exacts[k].value >= d.begins() })
	for _, other := range s.exacts[from:] {
		if !strings.HasPrefix(other.value, d.begins()) {
			break
		}
		if d.value == "" || d.takes(other.value) {
			values = append(values, other.pattern())
		}
	}
	if d.value == "" {
		for _, k := range s.stars {
			values = append(values, s.level[k].pattern())
		}
		return values
	}
	for _, k := range s.near(d) {
		if k < i && s.level[k].meets(d) {
			values = append(values, s.level[k].pattern())
		}
	}
	return values
}
