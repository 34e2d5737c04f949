package envoyrules

import (
	"slices"
	"sort"
	"strings"
)

// siblings are the descriptors of one key on one level.
type siblings struct {
	level  []*descriptor // the whole level
	exacts []*descriptor // those of one value, by value
	stars  []int         // the numbers of those with stars, by what is before the first star
	texts  []string      // which that is, each once
}

// siblingsOf are those of each key.
func siblingsOf(level []*descriptor) map[string]*siblings {
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

// begins is what stands before the first star.
func (d *descriptor) begins() string {
	text, _, _ := strings.Cut(d.value, "*")
	return text
}

// near are the numbers, in order, of those with stars that may take what one with stars
// takes: one begins as the other does.
func (s *siblings) near(d *descriptor) (all []int) {
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

// taken returns what others take before level[i]: exact values go before stars, those
// before each other in order, and both before none.
func (s *siblings) taken(i int, d *descriptor) (values []string) {
	if d.value != "" && !d.star() {
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
		if k < i {
			values = append(values, s.level[k].pattern())
		}
	}
	return values
}
