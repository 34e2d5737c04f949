package memstore

import (
	"math"
	"slices"
)

// A retained is the units that a key had in use under a limit, by its ID, in forms that
// no longer count the key because it has met too many. Until those units would have
// been idle, every further form starts with at least as many. So a caller that uses
// one form after the other finds none of them fresh.
type retained struct {
	id    string
	steps []step
}

// A step is units that count until a moment; of several the later are fewer.
type step struct{ units, until int64 }

// mostSteps is how many steps a limit has at most; when there are more, the first
// two are merged.
const mostSteps = 4

// add returns steps with one more.
func add(steps []step, one step) []step {
	at := 0
	for _, o := range steps {
		if o.units >= one.units && o.until >= one.until {
			return steps
		}
		if o.until < one.until {
			at++
		}
	}
	steps = slices.Insert(slices.Clone(steps), at, one)
	steps = slices.DeleteFunc(steps, func(o step) bool { return o != one && o.units <= one.units && o.until <= one.until })
	if len(steps) > mostSteps {
		steps[1].units = steps[0].units
		steps = steps[1:]
	}
	return steps
}

// standing returns the units that steps say at a moment.
func standing(steps []step, now int64) int64 {
	for _, o := range steps {
		if o.until > now {
			return o.units
		}
	}
	return 0
}

// retain keeps what a form has in use of a key, which it is about to forget.
func (k *family) retain(s *Store, sh *shard, f *form, h uint64, now int64) {
	f.tablesIn(sh, func(t *table) {
		slot := t.find(h)
		if slot == nil {
			return
		}
		state, at := t.state(sh, slot), s.at(t, now)
		reset := int64(describe(t.meter, state, at, 0, true).ResetAfter)
		one := step{t.meter.InUse(state, at), now + min(reset, math.MaxInt64-now)}
		if one.until == now {
			return
		}
		all := slices.DeleteFunc(k.retained[h], func(o retained) bool { return standing(o.steps, now) == 0 })
		if len(all) == 0 {
			delete(k.retained, h)
			if len(k.retained) >= sh.maxKeys {
				return // full: the newest form has started with the units
			}
		}
		i := slices.IndexFunc(all, func(o retained) bool { return o.id == t.owner.id })
		if i < 0 {
			i, all = len(all), append(all, retained{id: t.owner.id})
		}
		all[i].steps = slices.DeleteFunc(all[i].steps, func(o step) bool { return o.until <= now })
		all[i].steps = add(all[i].steps, one)
		if k.retained == nil {
			k.retained = make(map[uint64][]retained)
		}
		k.retained[h] = all
	})
}

// retains reports whether anything is retained of a key.
func (k *family) retains(h uint64, now int64) bool {
	return slices.ContainsFunc(k.retained[h], func(o retained) bool { return standing(o.steps, now) > 0 })
}

// retainedFor returns the units that are retained of a key for a limit: those of its ID,
// and for one that finds no limit of its ID those of IDs that its form has not.
func (k *family) retainedFor(l *limit, h uint64, now int64, orphan bool) (units int64) {
	for _, o := range k.retained[h] {
		if o.id == l.id || orphan && l.form.limit(o.id) == nil {
			units = max(units, standing(o.steps, now))
		}
	}
	return units
}

// refundRetained takes units out of what is retained of the keys of the parts.
func (s *Store) refundRetained(parts []part, cost int64) {
	for i := range parts {
		p := &parts[i]
		k := p.sh.family(p.limit.form.name)
		if k == nil || k.retained[p.hash] == nil || slices.ContainsFunc(parts[:i], p.sameKey) {
			continue
		}
		for at := range k.retained[p.hash] {
			one, most := &k.retained[p.hash][at], int64(0)
			for j := range parts[i:] {
				if o := &parts[i+j]; p.sameKey(*o) && (!o.apart || o.limit.id == one.id) {
					most = max(most, o.units(cost))
				}
			}
			for j := range one.steps {
				one.steps[j].units = max(one.steps[j].units-most, 0)
			}
		}
	}
}

// endRetained forgets what is retained of keys no longer.
func (k *family) endRetained(now int64) {
	for h := range k.retained {
		if !k.retains(h, now) {
			delete(k.retained, h)
		}
	}
	if len(k.retained) == 0 {
		k.retained = nil // a map does not shrink
	}
}

// copyRetained returns a copy that does not change any more.
func copyRetained(all []retained) []retained {
	all = slices.Clone(all)
	for i := range all {
		all[i].steps = slices.Clone(all[i].steps)
	}
	return all
}
