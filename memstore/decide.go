package memstore

import (
	"context"
	"runtime"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// Allow implements [stint.Bound]. Nearly every request is for a key that has its
// place under the only limit: this is the fast path for those, in a straight line.
// A table is plain if states lie in its slots, none has an open reservation, and all
// drain by the same numbers.
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
	if t := l.account.tables[i]; t != nil && t.plain() {
		if slot := t.find(h); slot != nil {
			ok := l.meter.Allow(slot, s.at(t, sh.tick(now)), cost) // total: no defer is needed
			sh.mu.Unlock()
			runtime.KeepAlive(b) // until here its limits are held
			return ok, nil
		}
	}
	ok := sh.allowRarely(s, l, h, now, cost)
	runtime.KeepAlive(b)
	return ok, nil
}

// allowSeveral decides under several limits, or about what costs nothing.
func (b *bound) allowSeveral(key string, cost int64) (bool, error) {
	if cost > 0 {
		if _, ok := b.fastPath(b.store.seed.hash(key), cost, 1, false, nil); ok {
			return true, nil
		}
	}
	d, err := b.several(meter.OpTake, key, cost)
	return d.Allowed, err
}

// allowRarely takes cost from a key of any state under one limit, and unlocks.
func (sh *shard) allowRarely(s *Store, l *limit, h uint64, now, cost int64) bool {
	defer sh.mu.Unlock()
	return sh.allow(s, l, sh.table(l.account), h, now, cost)
}

// allow takes cost from one key.
func (sh *shard) allow(s *Store, l *limit, t *table, h uint64, now, cost int64) bool {
	slot, state, at := sh.ready(s, l, t, h, now, cost)
	ok := slot == nil || sh.putInForce(s, t, l, h, slot, at)
	if open := sh.openOn(s, t, h); ok && open != nil {
		_, ok = l.meter.TakeAmong(open, state, at, cost)
	} else if ok {
		ok = l.meter.Allow(state, at, cost)
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
	if t := l.account.tables[i]; t != nil && t.plain() {
		if slot := t.find(h); slot != nil {
			a, ok := l.meter.Take(slot, s.at(t, sh.tick(now)), cost)
			sh.mu.Unlock()
			runtime.KeepAlive(b)
			d.Set(l.meter, a, ok, cost)
			return d, nil
		}
	}
	sh.takeRarely(&d, s, l, h, now, cost)
	runtime.KeepAlive(b)
	return d, nil
}

// takeRarely takes cost from a key of any state under one limit, and unlocks.
func (sh *shard) takeRarely(d *stint.Decision, s *Store, l *limit, h uint64, now, cost int64) {
	defer sh.mu.Unlock()
	t := sh.table(l.account)
	slot, state, at := sh.ready(s, l, t, h, now, cost)
	var a meter.Answer
	var ok bool
	if slot != nil && !sh.putInForce(s, t, l, h, slot, at) {
		a, ok = l.meter.Through(state, t.drain(slot), at, cost)
	} else {
		a, ok = l.meter.TakeAmong(sh.openOn(s, t, h), state, at, cost)
	}
	d.Set(l.meter, a, ok, cost)
}

// ready returns the slot of a key for one take, its state, and the time to decide at.
// A key that has no place gets one, unless its cost can never pass and is not counted:
// then the slot is nil.
func (sh *shard) ready(s *Store, l *limit, t *table, h uint64, now, cost int64) (slot, state []uint64, at int64) {
	now = sh.tick(now)
	at = s.at(t, now)
	if slot = t.find(h); slot == nil {
		if cost > l.meter.Capacity() && !l.meter.CountsDenied() && t.cells == nil {
			return nil, sh.unseen(t), at
		}
		slot = sh.place(s, t, h, now, at)
		sh.forgotten(s, t, h)
	}
	if !t.indirect() {
		return slot, slot, at
	}
	if t.log() {
		slot = sh.grow(s, t, h, slot, now, cost)
	}
	return slot, sh.block(slot[0]), at
}

// several decides for one key under several limits, or with the rarer verbs.
func (b *bound) several(op meter.Op, key string, cost int64) (stint.Decision, error) {
	h, v := b.store.seed.hash(key), b.view.Load()
	if op == meter.OpTake && cost > 0 {
		if d, ok := b.fastPath(h, cost, 1, true, nil); ok {
			return d, nil
		}
	}
	if len(v.limits) <= fewParts {
		var few [fewParts]part
		return b.store.decide(op, b.parts(few[:0], v, h), cost, nil)
	}
	many := manyParts.Get().(*[stint.MaxLimits]part)
	defer putParts(many)
	return b.store.decide(op, b.parts(many[:0], v, h), cost, nil)
}

// fastPathLimits is how many states the fast path keeps at hand; it looks for those
// beyond twice.
const fastPathLimits = 8

// fastPath takes from a key that has its place under every limit and passes all of
// them, which is what nearly every request of several limits does. If it is
// not so, ok is false and nothing has changed. With full it returns the whole
// decision, and each limit's own in answers unless that is nil.
func (b *bound) fastPath(h uint64, cost, weight int64, full bool, answers []stint.Decision) (d stint.Decision, ok bool) {
	s, v := b.store, b.view.Load()
	units, fits := satmath.Mul(cost, weight)
	if !fits || v.bans || s.closed.Load() {
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
		t := l.account.tables[sh.index]
		if t == nil || t.log() {
			return d, false
		}
		slot := t.find(h)
		if slot == nil || sh.openOn(s, t, h) != nil || t.numbered && t.number(slot) != l.number {
			return d, false
		}
		state, at := t.state(sh, slot), s.at(t, now)
		if !l.meter.Admits(state, at, units) {
			return d, false
		}
		if i < fastPathLimits {
			states[i], ats[i] = state, at
		}
	}
	var own stint.Decision
	for i, l := range v.limits {
		var state []uint64
		var at int64
		if i < fastPathLimits {
			state, at = states[i], ats[i]
		} else {
			t := l.account.tables[sh.index]
			state, at = t.state(sh, t.find(h)), s.at(t, now)
		}
		if !full {
			l.meter.Allow(state, at, units)
			continue
		}
		a, ok := l.meter.Take(state, at, units)
		own.Set(l.meter, a, ok, units)
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
			ok = layercheck.One(0, l, true, len(b.view.Load().limits)) == nil
		}
		if ok && b.store == s {
			if d, ok := b.fastPath(s.seed.hash(l.Key), cost, max(l.Weight, 1), true, l.Answers); ok {
				return d, nil
			}
		}
	}
	if countLimits(layers) <= fewParts {
		var few [fewParts]part
		parts, err := s.parts(few[:0], layers)
		if err != nil {
			return stint.Decision{}, err
		}
		return s.decide(op, parts, cost, nil)
	}
	many := manyParts.Get().(*[stint.MaxLimits]part)
	defer putParts(many)
	parts, err := s.parts(many[:0], layers)
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
		for i := range parts {
			parts[i].putInForce(s, now)
		}
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
	d.Denied, d.Taken = denied, 0
	if denied == 0 && op != meter.OpPeek {
		d.Taken = cost
	}
	return d, nil
}

// take charges a cost that all parts let pass. It is not for tables with cells: two
// parts may share one, each passes by itself, and both are charged even if there is
// no room for both.
func (p *part) take(s *Store, now, cost int64, own *stint.Decision) {
	units, _ := satmath.Mul(cost, p.weight)
	if units == 0 {
		*own = p.describe(s, now, 0, true) // what costs nothing gets no place
	} else {
		state, at := p.room(s, now, units)
		a, ok := p.limit.meter.TakeAmong(p.sh.openOn(s, p.table(), p.hash), state, at, units)
		own.Set(p.limit.meter, a, ok, units)
	}
	if p.answer != nil {
		*p.answer = *own
	}
}

// carryOut does to one part what op asks for, when it is known which parts
// have denied, and gives its part of the answer.
func (p *part) carryOut(s *Store, now int64, op meter.Op, cost int64, denied stint.LimitSet, i int, held *reservation, own *stint.Decision) {
	units, fits := satmath.Mul(cost, p.weight)
	delay := p.delay(s, now, units)
	switch {
	case op == meter.OpPeek || cost == 0 || denied != 0 && !p.limit.meter.CountsDenied():
	case denied == 0 && held != nil:
		p.reserve(s, now, units, &held.parts[i])
	default:
		p.charge(s, now, units, denied == 0)
	}
	if denied.Has(i) && op != meter.OpPeek && p.limit.ban != nil && fits && units <= p.limit.meter.Capacity() {
		p.begin(s, now)
	}
	*own = p.describe(s, now, units, denied == 0)
	if denied == 0 {
		own.Delay = delay
	} else if !fits {
		own.RetryAfter = stint.Never
	}
	if p.answer != nil {
		p.setAnswer(*own, denied.Has(i), op != meter.OpPeek, units)
	}
}

// admits reports whether the part lets a cost pass.
func (p *part) admits(s *Store, now, cost int64) bool {
	units, fits := satmath.Mul(cost, p.weight)
	if p.limit.ban != nil && units > 0 && p.banned(now) > 0 {
		return false
	}
	if state, old := p.look(s, now); !fits || old == nil {
		return fits && p.limit.meter.Admits(state, p.at, units)
	} else {
		_, ok := p.limit.meter.Through(state, old, p.at, units)
		return ok
	}
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
