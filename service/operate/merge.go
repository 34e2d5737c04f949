package operate

import (
	"cmp"
	"slices"

	"github.com/stint-dev/stint/service/rulesapi"
)

// Merge combines the pages of several servers into one. It adds up counts. Where a key is near a
// limit on several servers, it keeps the nearest. It returns up to n keys of each kind: the nearest,
// or by [ByUsed] those that have used most.
func Merge(pages []*Page, n int, by string) *Page {
	all := &Page{Rules: []RuleCount{}, Denied: []KeyCount{}, Nearest: []KeyPart{}}
	for _, p := range pages {
		problem := cmp.Or(all.Version.Problem, p.Version.Problem)
		if p.At.After(all.At) {
			all.At, all.Version, all.Minutes = p.At, p.Version, p.Minutes
		}
		all.Version.Problem = problem
		for _, r := range p.Rules {
			add(&all.Rules, r, func(o *RuleCount) bool { return o.Rule == r.Rule }, func(o *RuleCount) {
				o.Allowed, o.Denied, o.ShadowDenied = o.Allowed+r.Allowed, o.Denied+r.Denied, o.ShadowDenied+r.ShadowDenied
				o.AllowedPerSecond, o.DeniedPerSecond = o.AllowedPerSecond+r.AllowedPerSecond, o.DeniedPerSecond+r.DeniedPerSecond
			})
		}
		for _, k := range p.Denied {
			add(&all.Denied, k, func(o *KeyCount) bool { return o.Rule == k.Rule && o.Key == k.Key }, func(o *KeyCount) {
				o.Count, o.Over = o.Count+k.Count, o.Over+k.Over
				if k.Since.Before(o.Since) {
					o.Since = k.Since
				}
				if k.Last.After(o.Last) {
					o.Last = k.Last
				}
			})
		}
		for _, k := range p.Nearest {
			add(&all.Nearest, k, func(o *KeyPart) bool { return o.Rule == k.Rule && o.Key == k.Key && o.Limit == k.Limit }, func(o *KeyPart) {
				if k.Part > o.Part {
					*o = k
				}
			})
		}
		all.Stores = append(all.Stores, p.Stores...)
		for _, n := range p.Nodes {
			add(&all.Nodes, n, func(o *rulesapi.Node) bool { return o.Node == n.Node }, func(o *rulesapi.Node) {
				if n.Seen.After(o.Seen) {
					*o = n
				}
			})
		}
	}
	slices.SortStableFunc(all.Rules, byRate)
	slices.SortStableFunc(all.Denied, func(a, b KeyCount) int { return cmp.Compare(b.Count-b.Over, a.Count-a.Over) })
	sortParts(all.Nearest, by)
	slices.SortStableFunc(all.Stores, func(a, b Store) int { return cmp.Compare(b.MeanMS, a.MeanMS) })
	all.Rules = all.Rules[:min(n, len(all.Rules))]
	all.Denied = all.Denied[:min(n, len(all.Denied))]
	all.Nearest = all.Nearest[:min(n, len(all.Nearest))]
	return all
}

// MergeBlocked combines the lists of blocked keys of several servers, ordered by rule and key.
// Where several servers deny a key, the latest end counts.
func MergeBlocked(lists [][]Blocked) (all []Blocked) {
	at := make(map[[2]string]int)
	for _, b := range slices.Concat(lists...) {
		i, there := at[[2]string{b.Rule, b.Key}]
		if !there {
			at[[2]string{b.Rule, b.Key}] = len(all)
			all = append(all, b)
			continue
		}
		count := all[i].Count + b.Count
		if until := all[i].Until; until != nil && (b.Until == nil || b.Until.After(*until)) {
			all[i] = b
		}
		all[i].Count = count
	}
	slices.SortFunc(all, byKey)
	return all
}

// byKey orders keys by rule and key.
func byKey(a, b Blocked) int { return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key)) }

// add appends an element to a list, or joins it with the element that is the same.
func add[T any](list *[]T, one T, same func(*T) bool, join func(*T)) {
	for i := range *list {
		if same(&(*list)[i]) {
			join(&(*list)[i])
			return
		}
	}
	*list = append(*list, one)
}
