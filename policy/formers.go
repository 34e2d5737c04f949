package policy

import (
	"slices"
	"strings"

	"github.com/stint-dev/stint"
)

// Which plan goes on with what another had is for people to read: what keys have
// used belongs to the rule.

// formers returns the plan of old that each goes on with: that of the same
// name, or for an override, which goes by its limits if it has no name, that
// which the same conditions had, if it is gone.
func (r *Rules) formers(old *Rules) map[*plan]*plan {
	all := make(map[*plan]*plan)
	if old == nil {
		return all
	}
	gone := make(map[string]*plan)
	for _, p := range old.plans {
		gone[p.name] = p
	}
	for _, p := range r.plans {
		if was := gone[p.name]; was != nil {
			all[p] = was
			delete(gone, p.name)
		}
	}
	names := old.names()
	for _, one := range r.rules {
		was := names[one.name]
		if was == nil || len(gone) == 0 {
			continue
		}
		before := was.overridesOf(gone)
		for i := range one.overrides {
			o := &one.overrides[i]
			if o.plan.action != "" || all[o.plan] != nil {
				continue
			}
			for _, b := range before[o.when.String()] {
				if gone[b.plan.name] != nil {
					all[o.plan] = b.plan
					delete(gone, b.plan.name)
					break
				}
			}
		}
	}
	return all
}

// names returns the rules by name.
func (r *Rules) names() map[string]*rule {
	all := make(map[string]*rule, len(r.rules))
	for _, one := range r.rules {
		all[one.name] = one
	}
	return all
}

// overridesOf returns the overrides of some plans, by their conditions, but
// those with more values than the text of a condition has.
func (r *rule) overridesOf(plans map[string]*plan) map[string][]*override {
	all := make(map[string][]*override)
	for i := range r.overrides {
		if o := &r.overrides[i]; plans[o.plan.name] == o.plan {
			if text := o.when.String(); !strings.Contains(text, "…") {
				all[text] = append(all[text], o)
			}
		}
	}
	return all
}

// parts returns which of old each limit goes on with, or −1: that of the same
// ID; a single one without takes the single one that is left over.
func parts(limits, old []stint.Limit) []int {
	from, left := make([]int, len(limits)), make(map[int]bool)
	for j := range old {
		left[j] = true
	}
	without := make([]int, 0, len(limits))
	for i, l := range limits {
		from[i] = slices.IndexFunc(old, func(o stint.Limit) bool { return o.ID() == l.ID() })
		if delete(left, from[i]); from[i] < 0 {
			without = append(without, i)
		}
	}
	if len(without) == 1 && len(left) == 1 {
		for j := range left {
			from[without[0]] = j
		}
	}
	return from
}
