package memstore

import (
	"math"
	"slices"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// meet gives the key of a part, under a form that it has not met, what is in use
// under the others.
func (p *part) meet(s *Store, parts []part, now int64) {
	sh, f, h := p.sh, p.limit.form, p.hash
	k := sh.family(f.name)
	sh.sweep(s, k, now)
	forms := sh.forms(s, k, f, h, now)
	if slices.Contains(forms, f) {
		return
	}
	if len(forms) > 0 || k.retains(h, now) {
		p.begin(s, k, forms, now)
		return
	}
	forms = []*form{f}
	for i := range parts { // all that decide about an unseen key begin with nothing
		if g := parts[i].limit.form; g.name == f.name && parts[i].hash == h && !slices.Contains(forms, g) {
			forms = append(forms, g)
		}
	}
	if len(forms) > 1 || k.all {
		k.put(h, forms)
	}
}

// begin gives a key that other forms count what it starts with under this one.
func (p *part) begin(s *Store, k *family, forms []*form, now int64) {
	sh, f, h := p.sh, p.limit.form, p.hash
	goes := sh.tooMany(s, forms, h, now)
	states := make([][]uint64, len(f.limits))
	for i, l := range f.limits {
		states[i] = sh.start(s, k, l, forms, h, now)
	}
	keeps := slices.DeleteFunc(slices.Clone(forms), func(g *form) bool { return g == goes })
	if goes != nil {
		k.retain(s, sh, goes, h, now)
		goes.forget(s, sh, h)
	}
	for i, l := range f.limits {
		if states[i] == nil {
			continue
		}
		for !sh.roomFor(s, sh.table(l), now) && len(keeps) > 0 {
			k.retain(s, sh, keeps[0], h, now)
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
// retained of it.
func (sh *shard) start(s *Store, k *family, l *limit, forms []*form, h uint64, now int64) []uint64 {
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
		state := migrated(l.meter, t.meter, t.state(sh, slot), at)
		if !l.meter.Idle(state, at) && (most == nil || l.meter.UsesMore(state, most, l.meter, at)) {
			most = state
		}
	}
	if len(from) == 1 && from[0].id == l.id && from[0].meter.Spec() == l.meter.Spec() {
		return most // it has counted all along
	}
	orphans := !slices.ContainsFunc(from, func(o *limit) bool { return o.id == l.id })
	if units := k.retainedFor(l, h, now, orphans); units > 0 {
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

// migrated returns what a limit makes of the state of another.
func migrated(m, old *meter.Meter, state []uint64, now int64) []uint64 {
	words := m.Words()
	if m.Algorithm() == meter.SlidingLog && old.Algorithm() == meter.SlidingLog {
		words = max(words, len(state))
	}
	to := make([]uint64, words)
	m.Migrate(to, state, old, now)
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

// unmet returns what the key of a part would start with, for an answer that
// writes nothing; nil if there is nothing in use under other forms.
func (p *part) unmet(s *Store, now int64) []uint64 {
	sh, f, h := p.sh, p.limit.form, p.hash
	k := sh.family(f.name)
	if k == nil {
		return nil
	}
	forms := sh.known(k, h)
	busy := slices.ContainsFunc(forms, func(g *form) bool { return !g.idle(s, sh, h, now) })
	if !busy && !k.retains(h, now) || slices.Contains(forms, f) {
		return nil
	}
	return sh.start(s, k, p.limit, forms, h, now)
}

// elsewhere does something to the state of each key under the forms that it has
// met, for what was asked under others: charging, which makes a place for it if
// need be, or refunding. It is given units of each part; of those of one form,
// the most.
func (s *Store) elsewhere(parts []part, now int64, charges bool, units func(i int) int64, do func(m *meter.Meter, state []uint64, at, units int64)) {
	for i := range parts {
		p := &parts[i]
		t := p.limit.tables[p.sh.index]
		if t == nil || !t.several {
			continue
		}
		k := p.sh.family(p.limit.form.name)
		if k == nil || slices.ContainsFunc(parts[:i], p.sameKey) {
			continue
		}
		for _, g := range p.sh.known(k, p.hash) {
			for _, l := range g.limits {
				if sum := p.unitsElsewhere(parts[i:], l, func(j int) int64 { return units(i + j) }); sum > 0 {
					p.sh.countUnder(s, k, l, p.hash, now, sum, charges, do)
				}
			}
		}
	}
}

// unitsElsewhere returns what parts for one key have taken under other forms
// than that of a limit, and count under that.
func (p *part) unitsElsewhere(parts []part, l *limit, units func(j int) int64) (sum int64) {
	for j := range parts {
		f := parts[j].limit.form
		first := func(o part) bool { return p.sameKey(o) && o.limit.form == f }
		if !p.sameKey(parts[j]) || f == l.form || slices.ContainsFunc(parts[:j], first) {
			continue
		}
		most := int64(0)
		for i := j; i < len(parts); i++ {
			if o := &parts[i]; first(*o) && (!o.apart || o.limit.id == l.id) {
				most = max(most, units(i))
			}
		}
		sum += min(most, math.MaxInt64-sum)
	}
	return sum
}

// sameKey reports whether two parts are about one key under one name.
func (p *part) sameKey(o part) bool {
	return o.hash == p.hash && o.limit.form.name == p.limit.form.name
}

func (sh *shard) countUnder(s *Store, k *family, l *limit, h uint64, now, units int64, charges bool, do func(m *meter.Meter, state []uint64, at, units int64)) {
	t := sh.table(l)
	at := s.at(t, now)
	slot := t.find(h)
	if slot == nil {
		if !charges {
			return
		}
		if !sh.roomFor(s, t, now) {
			k.retain(s, sh, l.form, h, now)
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
func (s *Store) counted(parts []part, now, cost int64, denied bool, held *reservation) {
	several := false
	for i := range parts {
		p := &parts[i]
		if t := p.limit.tables[p.sh.index]; t == nil || !t.several {
			continue
		}
		several = true
		if !denied || p.limit.meter.CountsDenied() {
			p.sh.decided(s, p.limit.form, p.hash)
		}
		if held != nil && !denied {
			held.parts[i].generation = p.sh.generation(p.limit, p.hash)
		}
	}
	if !several {
		return
	}
	units := func(i int) int64 {
		units, _ := satmath.Mul(cost, parts[i].weight)
		return units
	}
	s.elsewhere(parts, now, true, units, func(m *meter.Meter, state []uint64, at, units int64) {
		if !denied || m.CountsDenied() {
			m.Charge(state, at, units)
		}
	})
}
