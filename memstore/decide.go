package memstore

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// bound implements [stint.Bound].
type bound struct {
	store  *Store
	view   atomic.Pointer[view]
	pinned *atomic.Pointer[form] // the view's, for unpin
}

// Limits implements [stint.Bound].
func (b *bound) Limits() []stint.Limit {
	limits := b.view.Load().limits
	out := make([]stint.Limit, len(limits))
	for i, l := range limits {
		out[i] = l.given
	}
	return out
}

// Name implements [stint.Bound].
func (b *bound) Name() string { return b.view.Load().form.name.text }

// Allow implements [stint.Bound]. Nearly every request is for a key that has its
// place under the only limit: this is the fast path for those, in a straight line.
// A table is plain if states lie in its slots, none has an open reservation, and
// its name has one form.
func (b *bound) Allow(_ context.Context, key string, cost int64) (bool, error) {
	s, l := b.store, b.view.Load().only
	if l == nil || cost <= 0 {
		return b.allowSeveral(key, cost)
	}
	if s.closed.Load() {
		return false, stint.ErrClosed
	}
	h := s.seed.hash(key)
	i := s.shard(h)
	sh := &s.shards[i]
	now := s.clock.now()
	sh.mu.Lock()
	if t := l.tables[i]; t != nil && t.plain() {
		if slot := t.find(h); slot != nil {
			ok := t.meter.Allow(slot, s.at(t, sh.tick(now)), cost) // total: no defer is needed
			if !ok {
				sh.denial(l, h, key)
			}
			sh.mu.Unlock()
			runtime.KeepAlive(b) // until here its limits are held
			return ok, nil
		}
	}
	return b.allowRarely(l, sh, h, key, now, cost)
}

// allowSeveral decides under several limits, or about what costs nothing.
func (b *bound) allowSeveral(key string, cost int64) (bool, error) {
	if cost > 0 && len(b.view.Load().limits) <= fastPathLimits {
		if _, ok := b.fastPath(b.store.seed.hash(key), cost, 1, false, nil); ok {
			return true, nil
		}
	}
	d, err := b.several(meter.OpTake, key, cost)
	return d.Allowed, err
}

// allowRarely takes cost from a key of any state under one limit. It unlocks.
func (b *bound) allowRarely(l *limit, sh *shard, h uint64, key string, now, cost int64) (bool, error) {
	if ok, decided := sh.allowAlone(b.store, l, h, key, now, cost); decided {
		runtime.KeepAlive(b)
		return ok, nil
	}
	d, err := b.several(meter.OpTake, key, cost)
	return d.Allowed, err
}

// allowAlone takes cost from a key that counts under no other form, and unlocks.
func (sh *shard) allowAlone(s *Store, l *limit, h uint64, key string, now, cost int64) (ok, decided bool) {
	defer sh.mu.Unlock()
	t := sh.table(l)
	if t.several && sh.among(l, t, h) {
		return false, false
	}
	return sh.allow(s, l, t, h, key, now, cost), true
}

// allow takes cost from one key.
func (sh *shard) allow(s *Store, l *limit, t *table, h uint64, key string, now, cost int64) bool {
	slot, at := sh.ready(s, t, h, now, cost)
	var ok bool
	if open := sh.openOn(s, t, h); open != nil {
		_, ok = t.meter.TakeAmong(&open.Reservations, slot, at, cost)
	} else {
		ok = t.meter.Allow(slot, at, cost)
	}
	if !ok {
		sh.denial(l, h, key)
	}
	return ok
}

// Decide implements [stint.Bound].
func (b *bound) Decide(_ context.Context, op meter.Op, key string, cost int64) (d stint.Decision, err error) {
	s, l := b.store, b.view.Load().only
	if l == nil || op != meter.OpTake || cost <= 0 {
		return b.several(op, key, cost)
	}
	if s.closed.Load() {
		return d, stint.ErrClosed
	}
	h := s.seed.hash(key)
	i := s.shard(h)
	sh := &s.shards[i]
	now := s.clock.now()
	sh.mu.Lock()
	if t := l.tables[i]; t != nil && t.plain() {
		if slot := t.find(h); slot != nil {
			a, ok := t.meter.Take(slot, s.at(t, sh.tick(now)), cost)
			if !ok {
				sh.denial(l, h, key)
			}
			sh.mu.Unlock()
			runtime.KeepAlive(b)
			d.Set(t.meter, a, ok, cost)
			return d, nil
		}
	}
	if !sh.takeAlone(&d, s, l, h, key, now, cost) {
		return b.several(op, key, cost)
	}
	runtime.KeepAlive(b)
	return d, nil
}

// takeAlone takes cost from a key that counts under no other form, and unlocks.
func (sh *shard) takeAlone(d *stint.Decision, s *Store, l *limit, h uint64, key string, now, cost int64) (decided bool) {
	defer sh.mu.Unlock()
	t := sh.table(l)
	if t.several && sh.among(l, t, h) {
		return false
	}
	slot, at := sh.ready(s, t, h, now, cost)
	if open := sh.openOn(s, t, h); open != nil {
		takeAmong(d, t.meter, &open.Reservations, slot, at, cost)
	} else {
		a, ok := t.meter.Take(slot, at, cost)
		d.Set(t.meter, a, ok, cost)
	}
	if !d.Allowed {
		sh.denial(l, h, key)
	}
	return true
}

// ready returns the state of a key for one take, and the time to decide at. A
// key that has no place gets one, unless its cost can never pass and is not counted.
func (sh *shard) ready(s *Store, t *table, h uint64, now, cost int64) (state []uint64, at int64) {
	now = sh.tick(now)
	at = s.at(t, now)
	slot := t.find(h)
	if slot == nil {
		if cost > t.meter.Capacity() && !t.meter.CountsDenied() && t.cells == nil {
			return sh.unseen(t), at
		}
		slot = sh.place(s, t, h, now, at)
		sh.forgotten(s, t, h)
	}
	if !t.indirect() {
		return slot, at
	}
	if t.log() {
		slot = sh.grow(s, t, h, slot, now, cost)
	}
	return sh.slab.get(slot[0]), at
}

// several decides for one key under several limits, or with the rarer verbs.
func (b *bound) several(op meter.Op, key string, cost int64) (stint.Decision, error) {
	h, v := b.store.seed.hash(key), b.view.Load()
	if op == meter.OpTake && cost > 0 && len(v.limits) <= fastPathLimits {
		if d, ok := b.fastPath(h, cost, 1, true, nil); ok {
			return d, nil
		}
	}
	var few [4]part
	parts := few[:0]
	for _, l := range v.limits {
		parts = append(parts, b.part(v, l, h, key))
	}
	return b.store.decide(op, parts, cost, nil)
}

// fastPathLimits is how many limits the fast path takes.
const fastPathLimits = 8

// fastPath takes from a key that has its place under every limit and passes all of
// them, which is what nearly every request of several limits does. If it is
// not so, ok is false and nothing has changed. With full it returns the whole
// decision, and each limit's own in answers unless that is nil.
func (b *bound) fastPath(h uint64, cost, weight int64, full bool, answers []stint.Decision) (d stint.Decision, ok bool) {
	s, v := b.store, b.view.Load()
	units, fits := satmath.Mul(cost, weight)
	if !fits || s.closed.Load() {
		return d, false
	}
	var states [fastPathLimits][]uint64
	var ats [fastPathLimits]int64
	sh := &s.shards[s.shard(h)]
	now := s.clock.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = sh.tick(now)
	for i, l := range v.limits {
		t := l.tables[sh.index]
		if t == nil || t.log() {
			return d, false
		}
		slot := t.find(h)
		if slot == nil || sh.openOn(s, t, h) != nil || t.several && sh.among(l, t, h) {
			return d, false
		}
		states[i], ats[i] = t.state(sh, slot), s.at(t, now)
		if !t.meter.Admits(states[i], ats[i], units) {
			return d, false
		}
	}
	var own stint.Decision
	for i, l := range v.limits {
		t := l.tables[sh.index]
		if !full {
			t.meter.Allow(states[i], ats[i], units)
			continue
		}
		a, ok := t.meter.Take(states[i], ats[i], units)
		own.Set(t.meter, a, ok, units)
		if answers != nil {
			answers[i] = own
		}
		join(&d, &own, weight, i)
	}
	d.Taken = cost
	runtime.KeepAlive(b)
	return d, true
}

// Decide implements [stint.Store].
func (s *Store) Decide(_ context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if op == meter.OpTake && cost > 0 && len(layers) == 1 {
		l := &layers[0]
		b, ok := l.Bound.(*bound)
		if ok && b.store == s {
			if n := len(b.view.Load().limits); n > fastPathLimits || layercheck.One(0, l, true, n) != nil {
				ok = false
			}
		}
		if ok && b.store == s {
			if d, ok := b.fastPath(s.seed.hash(l.Key), cost, max(l.Weight, 1), true, l.Answers); ok {
				return d, nil
			}
		}
	}
	var few [4]part
	parts, err := s.parts(few[:0], layers)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.decide(op, parts, cost, nil)
}

// decide answers op over all parts: read, decide, write all or nothing. If
// held is not nil and the cost is charged, its parts hold where to. While a table is
// full it has cells, the states that new keys share; then carryOut charges it.
func (s *Store) decide(op meter.Op, parts []part, cost int64, held *reservation) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if s.closed.Load() {
		return stint.Decision{}, stint.ErrClosed
	}
	now := s.lock(parts)
	defer s.unlock(parts)
	if op != meter.OpPeek && cost > 0 {
		s.meet(parts, now)
	}
	if op == meter.OpTakeUpTo {
		cost = s.upTo(parts, now, cost)
	}
	var denied stint.LimitSet
	for i := range parts {
		if !parts[i].admits(s, now, cost) {
			denied |= 1 << uint(i)
		}
	}
	var d, own stint.Decision
	for i := range parts {
		p := &parts[i]
		if denied == 0 && op != meter.OpPeek && held == nil && p.table().cells == nil {
			p.take(s, now, cost, &own)
		} else {
			p.carryOut(s, now, op, cost, denied, i, held, &own)
		}
		join(&d, &own, p.weight, i)
	}
	if op != meter.OpPeek && cost > 0 {
		s.counted(parts, now, cost, denied != 0, held)
	}
	d.Denied, d.Taken = denied, 0
	if denied == 0 && op != meter.OpPeek {
		d.Taken = cost
	}
	return d, nil
}

// meet makes the forms that are about to decide known to their keys: one that a
// key has not met starts with what is in use under the others. It is called
// before anything is decided that may be charged.
func (s *Store) meet(parts []part, now int64) {
	for i := range parts {
		if p := &parts[i]; p.table().several {
			p.meet(s, parts, now)
		}
	}
}

// take charges a cost that all parts let pass. It is not for tables with cells: two
// parts may share one, each passes by itself, and both are charged even if there is
// no room for both.
func (p *part) take(s *Store, now, cost int64, own *stint.Decision) {
	units, _ := satmath.Mul(cost, p.weight)
	if units == 0 {
		p.seek(s, now) // what costs nothing gets no place
		t := p.table()
		*own = describe(t.meter, p.state(s, now), p.at, 0, true)
	} else {
		state, at := p.room(s, now, units)
		if open := p.sh.openOn(s, p.table(), p.hash); open != nil {
			takeAmong(own, p.meter, &open.Reservations, state, at, units)
		} else {
			a, ok := p.meter.Take(state, at, units)
			own.Set(p.meter, a, ok, units)
		}
	}
	if p.answer != nil {
		*p.answer = *own
	}
}

// carryOut does to one part what op asks for, when it is known which parts
// have denied, and gives its part of the answer.
func (p *part) carryOut(s *Store, now int64, op meter.Op, cost int64, denied stint.LimitSet, i int, held *reservation, own *stint.Decision) {
	t := p.table()
	p.seek(s, now)
	units, fits := satmath.Mul(cost, p.weight)
	delay := t.meter.Delay(p.state(s, now), p.at, units)
	switch {
	case op == meter.OpPeek || cost == 0 || denied != 0 && !t.meter.CountsDenied():
	case denied == 0 && held != nil:
		p.reserve(s, now, units, &held.parts[i])
	default:
		p.charge(s, now, units, denied == 0)
	}
	*own = describe(t.meter, p.state(s, now), p.at, units, denied == 0)
	if denied == 0 {
		own.Delay = delay
	} else if !fits {
		own.RetryAfter = stint.Never
	}
	if p.answer != nil {
		p.setAnswer(*own, denied.Has(i), op != meter.OpPeek, units)
	}
	if denied.Has(i) && op != meter.OpPeek {
		p.sh.denial(p.limit, p.hash, p.key)
	}
}

// admits reports whether the part lets a cost pass.
func (p *part) admits(s *Store, now, cost int64) bool {
	p.seek(s, now)
	units, fits := satmath.Mul(cost, p.weight)
	return fits && p.table().meter.Admits(p.state(s, now), p.at, units)
}

// setAnswer writes the part's own answer where the caller wants it.
func (p *part) setAnswer(answer stint.Decision, denied, charges bool, units int64) {
	if answer.Allowed && charges {
		answer.Taken = units
	}
	answer.Allowed, answer.Denied = !denied, 1
	if !denied {
		answer.RetryAfter, answer.Denied = 0, 0
	}
	*p.answer = answer
}

// join adds the answer of part i, in units of the request, to d.
func join(d, own *stint.Decision, weight int64, i int) {
	if weight > 1 {
		own.Limit /= weight
		own.Remaining /= weight
	}
	if i == 0 {
		*d = *own
		return
	}
	own.Tightest = i
	d.Join(own)
}
