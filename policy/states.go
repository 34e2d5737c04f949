package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
)

// What keys have used belongs to a name in the store: a plan's, and the ID of
// each of its limits. In the memory of one process a plan goes on with the
// names of the one whose place it takes, so that a limit of another kind or
// period, and an override of other numbers, find what was used. A store that is
// shared has the names of the file alone: processes that read another file
// before must mean the same.

// A state is what the store knows the limits of a plan by.
type state struct {
	name   string
	limits []stint.Limit // each with its ID as its name
}

// states returns what the store is to know the plans by, which take the place
// of those of old.
func (r *Rules) states(old *Rules, were []state) []state {
	all, taken := make([]state, len(r.plans)), make(map[string]bool)
	formers := r.formers(old)
	for i, p := range r.plans {
		if was := formers[p]; was != nil {
			all[i] = state{were[was.id].name, succeed(p.limits, was.limits, were[was.id].limits)}
			taken[all[i].name] = true
		}
	}
	for i, p := range r.plans {
		if formers[p] == nil {
			all[i] = state{unused(p.name, taken), p.limits}
			taken[all[i].name] = true
		}
	}
	return all
}

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

// succeed names limits as the store knows those whose parts they take.
func succeed(limits, old, known []stint.Limit) []stint.Limit {
	from, taken := parts(limits, old), make(map[string]bool)
	for _, l := range known {
		taken[l.Name()] = true
	}
	named := slices.Clone(limits)
	for i, l := range limits {
		if from[i] >= 0 {
			named[i] = l.WithName(known[from[i]].Name())
			continue
		}
		id := unused(l.Name(), taken)
		taken[id] = true
		named[i] = l.WithName(id)
	}
	return named
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

// unused returns the name, or one like it that is not taken.
func unused(name string, taken map[string]bool) string {
	free := name
	for n := 2; taken[free]; n++ {
		free = fmt.Sprintf("%s~%d", name, n)
	}
	return free
}
