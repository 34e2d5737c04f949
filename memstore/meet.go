package memstore

import (
	"math"
	"slices"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// meet gives the key of a request, under a form that it has not met, what is in use
// under the others.
func (r *request) meet(s *Store, rs []request, now int64) {
	sh, f, h := r.sh, r.limit.form, r.hash
	k := sh.kin(f.name)
	sh.sweep(s, k, now)
	forms := sh.forms(s, k, f, h, now)
	if slices.Contains(forms, f) {
		return
	}
	if len(forms) > 0 || k.holds(h, now) {
		r.begin(s, k, forms, now)
		return
	}
	forms = []*form{f}
	for i := range rs { // all that decide about an unseen key begin with nothing
		if g := rs[i].limit.form; g.name == f.name && rs[i].hash == h && !slices.Contains(forms, g) {
			forms = append(forms, g)
		}
	}
	if len(forms) > 1 || k.all {
		k.put(h, forms)
	}
}

// begin gives a key that other forms count what it starts with under this one.
func (r *request) begin(s *Store, k *kin, forms []*form, now int64) {
	sh, f, h := r.sh, r.limit.form, r.hash
	goes := sh.tooMany(s, forms, h, now)
	states := make([][]uint64, len(f.limits))
	for i, l := range f.limits {
		states[i] = sh.start(s, k, l, forms, h, now)
	}
	keeps := slices.DeleteFunc(slices.Clone(forms), func(g *form) bool { return g == goes })
	if goes != nil {
		k.hold(s, sh, goes, h, now)
		goes.forget(s, sh, h)
	}
	for i, l := range f.limits {
		if states[i] == nil {
			continue
		}
		for !sh.roomFor(s, sh.table(l), now) && len(keeps) > 0 {
			k.hold(s, sh, keeps[0], h, now)
			keeps[0].forget(s, sh, h) // its place is for the newest
			keeps = keeps[1:]
		}
		t := sh.table(l)
		sh.write(t, t.insert(sh, h, s.at(t, now)), states[i])
		sh.forgotten(s, t, h)
	}
	for _, g := range keeps {
		g.tablesIn(sh, func(t *table) { sh.forgotten(s, t, h) })
	}
	if keeps = append(keeps, f); len(keeps) > 1 || k.all {
		k.put(h, keeps)
	} else {
		k.remove(h)
	}
}

// tooMany returns the form that makes place for another, if one must: that
// which has nothing left to count the soonest.
func (sh *shard) tooMany(s *Store, forms []*form, h uint64, now int64) (goes *form) {
	if len(forms) < mostForms {
		return nil
	}
	soonest := int64(0)
	for _, g := range forms {
		if after := g.idleAfter(s, sh, h, now); goes == nil || after < soonest {
			goes, soonest = g, after
		}
	}
	return goes
}

// start returns the state that a key starts with under a limit, nil if that is
// an unseen one: see sources. Of several the greatest use counts, and what is
// held of it.
func (sh *shard) start(s *Store, k *kin, l *limit, forms []*form, h uint64, now int64) []uint64 {
	from := l.sources(forms)
	var most []uint64
	at := s.alignedAt(l, now)
	for _, g := range from {
		t := g.tables[sh.index]
		if t == nil {
			continue
		}
		slot := t.find(h)
		if slot == nil {
			continue
		}
		state := adopted(l.meter, t.meter, t.state(sh, slot), at)
		if !l.meter.Idle(state, at) && (most == nil || l.meter.UsesMore(state, most, l.meter, at)) {
			most = state
		}
	}
	if len(from) == 1 && from[0].id == l.id && from[0].meter.Spec() == l.meter.Spec() {
		return most // it has counted all along
	}
	orphans := !slices.ContainsFunc(from, func(o *limit) bool { return o.id == l.id })
	if units := k.heldFor(l, h, now, orphans); units > 0 {
		state := make([]uint64, l.meter.Words())
		l.meter.Charge(state, at, min(units, l.meter.Capacity()))
		if most == nil || l.meter.UsesMore(state, most, l.meter, at) {
			most = state
		}
	}
	return most
}

// sources returns the limits, of forms that a key has met, whose use it starts
// with under another: the same limit, in another list; else those of its ID;
// where there is none, those whose IDs its form has not.
func (l *limit) sources(forms []*form) (from []*limit) {
	var orphans []*limit
	for _, g := range forms {
		for _, other := range g.limits {
			switch {
			case other.id == l.id && other.meter.Spec() == l.meter.Spec():
				return []*limit{other}
			case other.id == l.id:
				from = append(from, other)
			case l.form.limit(other.id) == nil:
				orphans = append(orphans, other)
			}
		}
	}
	if len(from) == 0 {
		return orphans
	}
	return from
}

// adopted returns what a limit makes of a state of another.
func adopted(m, old *meter.Meter, state []uint64, now int64) []uint64 {
	words := m.Words()
	if m.Algorithm() == meter.SlidingLog && old.Algorithm() == meter.SlidingLog {
		words = max(words, len(state))
	}
	to := make([]uint64, words)
	m.Adopt(to, state, old, now)
	return to
}

// alignedAt returns the time that a limit decides at.
func (s *Store) alignedAt(l *limit, now int64) int64 {
	if l.meter.Aligned() {
		return s.clock.aligned(now)
	}
	return now
}

// limit returns the limit of an ID, or nil.
func (f *form) limit(id string) *limit {
	for _, l := range f.limits {
		if l.id == id {
			return l
		}
	}
	return nil
}

// unmet returns what the key of a request would start with, for an answer that
// writes nothing; nil if there is nothing in use under other forms.
func (r *request) unmet(s *Store, now int64) []uint64 {
	sh, f, h := r.sh, r.limit.form, r.hash
	k := sh.kin(f.name)
	if k == nil {
		return nil
	}
	forms := sh.known(k, h)
	busy := slices.ContainsFunc(forms, func(g *form) bool { return !g.idle(s, sh, h, now) })
	if !busy && !k.holds(h, now) || slices.Contains(forms, f) {
		return nil
	}
	return sh.start(s, k, r.limit, forms, h, now)
}

// elsewhere does something to the state of each key under the forms that it has
// met, for what was asked under others: charging, which makes a place for it if
// need be, or refunding. It is given units of each request; of those of one form,
// the most.
func (s *Store) elsewhere(rs []request, now int64, charges bool, units func(i int) int64, do func(m *meter.Meter, state []uint64, at, units int64)) {
	for i := range rs {
		r := &rs[i]
		t := r.limit.tables[r.sh.index]
		if t == nil || !t.several {
			continue
		}
		k := r.sh.kin(r.limit.form.name)
		if k == nil || slices.ContainsFunc(rs[:i], r.sameKey) {
			continue
		}
		for _, g := range r.sh.known(k, r.hash) {
			for _, l := range g.limits {
				if sum := r.unitsElsewhere(rs[i:], l, func(j int) int64 { return units(i + j) }); sum > 0 {
					r.sh.countUnder(s, k, l, r.hash, now, sum, charges, do)
				}
			}
		}
	}
}

// unitsElsewhere returns what requests for one key have taken under other forms
// than that of a limit, and count under that.
func (r *request) unitsElsewhere(rs []request, l *limit, units func(j int) int64) (sum int64) {
	for j := range rs {
		f := rs[j].limit.form
		first := func(o request) bool { return r.sameKey(o) && o.limit.form == f }
		if !r.sameKey(rs[j]) || f == l.form || slices.ContainsFunc(rs[:j], first) {
			continue
		}
		most := int64(0)
		for i := j; i < len(rs); i++ {
			if o := &rs[i]; first(*o) && (!o.apart || o.limit.id == l.id) {
				most = max(most, units(i))
			}
		}
		sum += min(most, math.MaxInt64-sum)
	}
	return sum
}

// sameKey reports whether two requests are about one key under one name.
func (r *request) sameKey(o request) bool {
	return o.hash == r.hash && o.limit.form.name == r.limit.form.name
}

func (sh *shard) countUnder(s *Store, k *kin, l *limit, h uint64, now, units int64, charges bool, do func(m *meter.Meter, state []uint64, at, units int64)) {
	t := sh.table(l)
	at := s.at(t, now)
	slot := t.find(h)
	if slot == nil {
		if !charges {
			return
		}
		if !sh.roomFor(s, t, now) {
			k.hold(s, sh, l.form, h, now)
			l.form.forget(s, sh, h)
			k.without(h, l.form) // it meets the key anew, with what the others count
			return
		}
		t = sh.table(l)
		slot = t.insert(sh, h, at)
		sh.write(t, slot, sh.unseen(t))
		sh.forgotten(s, t, h)
	}
	if t.log() && charges {
		slot = sh.grow(s, t, h, slot, now, units)
	}
	do(t.meter, t.state(sh, slot), at, units)
}

// counted counts under the other forms of the keys what was charged, or what
// was denied, under those that count that.
func (s *Store) counted(rs []request, now, cost int64, denied bool, held *reservation) {
	several := false
	for i := range rs {
		r := &rs[i]
		if t := r.limit.tables[r.sh.index]; t == nil || !t.several {
			continue
		}
		several = true
		if !denied || r.limit.meter.CountsDenied() {
			r.sh.decided(s, r.limit.form, r.hash)
		}
		if held != nil && !denied {
			held.layers[i].turn = r.sh.turn(r.limit, r.hash)
		}
	}
	if !several {
		return
	}
	units := func(i int) int64 {
		units, _ := satmath.Mul(cost, rs[i].weight)
		return units
	}
	s.elsewhere(rs, now, true, units, func(m *meter.Meter, state []uint64, at, units int64) {
		if !denied || m.CountsDenied() {
			m.Charge(state, at, units)
		}
	})
}
