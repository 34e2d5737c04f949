package operate

import (
	"cmp"
	"slices"
)

// Merge makes one page of those of several servers: counts are added up, of a key
// that is near a limit on several the nearest counts. It has up to n of each.
func Merge(pages []*Page, n int) *Page {
	all := &Page{Rules: []RuleCount{}, Denied: []KeyCount{}, Nearest: []KeyPart{}}
	for _, p := range pages {
		if p.At.After(all.At) {
			all.At, all.Version, all.Minutes = p.At, p.Version, p.Minutes
		}
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
		for _, node := range p.Nodes {
			if !slices.Contains(all.Nodes, node) {
				all.Nodes = append(all.Nodes, node)
			}
		}
	}
	slices.SortStableFunc(all.Rules, byRate)
	slices.SortStableFunc(all.Denied, func(a, b KeyCount) int { return cmp.Compare(b.Count-b.Over, a.Count-a.Over) })
	slices.SortStableFunc(all.Nearest, func(a, b KeyPart) int { return cmp.Compare(b.Part, a.Part) })
	slices.SortStableFunc(all.Stores, func(a, b Store) int { return cmp.Compare(b.MeanMS, a.MeanMS) })
	all.Rules = all.Rules[:min(n, len(all.Rules))]
	all.Denied = all.Denied[:min(n, len(all.Denied))]
	all.Nearest = all.Nearest[:min(n, len(all.Nearest))]
	return all
}

// add adds one to a list, or to the one of the list that is the same.
func add[T any](list *[]T, one T, same func(*T) bool, join func(*T)) {
	for i := range *list {
		if same(&(*list)[i]) {
			join(&(*list)[i])
			return
		}
	}
	*list = append(*list, one)
}
