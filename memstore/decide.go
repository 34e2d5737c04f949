package memstore

import (
	"context"
	"runtime"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// Allow implements [stint.Bound]. Nearly every request is for a known key under one
// limit: this is the fast path for it, in a straight line. It needs a plain table: its
// states lie in its slots, none has an open reservation, and all drain by one limit.
func (b *bound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	s, l := b.store, b.view.Load().only
	if l == nil || cost <= 0 {
		return b.allowSeveral(ctx, key, cost)
	}
	if s.closed.Load() {
		return false, stint.ErrClosed
	}
	h := s.seed.hash(key)
	i := s.shard(h)
	sh := &s.shards[i]
	now := s.clock.now()
	sh.mu.Lock()
	if t := l.account.in(int(i)); t != nil && t.plain() {
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

// allowSeveral decides under several limits or a ban, or about a cost that is not positive.
func (b *bound) allowSeveral(ctx context.Context, key string, cost int64) (bool, error) {
	if to := b.view.Load().diverted; to != nil {
		return to.Allow(ctx, key, cost)
	}
	if cost > 0 {
		if _, ok := b.fastPath(b.store.seed.hash(key), cost, 1, taking{}, nil); ok {
			return true, nil
		}
	}
	d, err := b.several(meter.OpTake, key, cost)
	return d.Allowed, err
}

// allowRarely is what Allow does off its fast path: the key is new, or its table is not
// plain. It unlocks the shard.
func (sh *shard) allowRarely(s *Store, l *limit, h uint64, now, cost int64) bool {
	defer sh.mu.Unlock()
	return sh.allow(s, l, sh.table(l.account), h, now, cost)
}

// allow takes cost from one key.
func (sh *shard) allow(s *Store, l *limit, t *table, h uint64, now, cost int64) bool {
	slot, state, at := sh.ready(s, l, t, h, now, cost)
	ok := slot == nil || sh.adopt(s, t, l, h, slot, at)
	if open := sh.openOn(s, t, h); ok && open != nil {
		_, ok = l.meter.TakeAmong(open, state, at, cost)
	} else if ok {
		ok = l.meter.Allow(state, at, cost)
	}
	return ok
}

// Decide implements [stint.Bound].
func (b *bound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (d stint.Decision, err error) {
	s, l := b.store, b.view.Load().only
	if l == nil || op != meter.OpTake || cost <= 0 {
		return b.elsewhere(ctx, op, key, cost)
	}
	if s.closed.Load() {
		return d, stint.ErrClosed
	}
	h := s.seed.hash(key)
	i := s.shard(h)
	sh := &s.shards[i]
	now := s.clock.now()
	sh.mu.Lock()
	if t := l.account.in(int(i)); t != nil && t.plain() {
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

// takeRarely is what Decide does off its fast path, as allowRarely. It unlocks the shard.
func (sh *shard) takeRarely(d *stint.Decision, s *Store, l *limit, h uint64, now, cost int64) {
	defer sh.mu.Unlock()
	t := sh.table(l.account)
	slot, state, at := sh.ready(s, l, t, h, now, cost)
	var a meter.Answer
	var ok bool
	if slot != nil && !sh.adopt(s, t, l, h, slot, at) {
		a, ok = l.meter.Through(state, t.drain(slot), at, cost)
	} else {
		a, ok = l.meter.TakeAmong(sh.openOn(s, t, h), state, at, cost)
	}
	d.Set(l.meter, a, ok, cost)
}

// ready returns the slot of a key for one take, its state, and the time to decide at.
// A key without a slot gets one, unless its cost can never pass and a denial is not
// counted: then the slot is nil.
func (sh *shard) ready(s *Store, l *limit, t *table, h uint64, now, cost int64) (slot, state []uint64, at int64) {
	now = sh.tick(now)
	at = s.at(t, now)
	if slot = t.find(h); slot == nil {
		if cost > l.meter.Capacity() && !l.meter.CountsDenied() && t.cells == nil {
			return nil, sh.unseen(t), at
		}
		slot = sh.newSlot(s, t, h, now, at)
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

// several decides for one key under several limits, or by an op other than a take.
func (b *bound) several(op meter.Op, key string, cost int64) (stint.Decision, error) {
	h, v := b.store.seed.hash(key), b.view.Load()
	if op == meter.OpTake && cost > 0 {
		if d, ok := b.fastPath(h, cost, 1, taking{full: true}, nil); ok {
			return d, nil
		}
	}
	if len(v.limits) <= fewParts {
		var few [fewParts]part
		return b.store.decide(op, b.parts(few[:0], v, h), cost, nil, nil)
	}
	many := manyParts.Get().(*[stint.MaxLimits]part)
	defer putParts(many)
	return b.store.decide(op, b.parts(many[:0], v, h), cost, nil, nil)
}

// taking says how the fast path takes: full asks for the whole decision, and waits leaves
// a request that a leaky_queue would delay to the slow path.
type taking struct{ full, waits bool }

// fastPathLimits is how many states the fast path keeps at hand; it looks for further
// states twice.
const fastPathLimits = 8

// fastPath takes from a key that has a slot under every limit and passes all of them,
// as nearly every request of several limits does. For any other request, ok is false and
// nothing has changed. If answers is not nil, each limit's own answer goes there.
func (b *bound) fastPath(h uint64, cost, weight int64, how taking, answers []stint.Decision) (d stint.Decision, ok bool) {
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
		t := l.account.in(sh.index)
		if t == nil || t.log() {
			return d, false
		}
		slot := t.find(h)
		if slot == nil || sh.openOn(s, t, h) != nil || t.numbered && t.number(slot) != l.number {
			return d, false
		}
		state, at := t.state(sh, slot), s.at(t, now)
		if !l.meter.Admits(state, at, units) || how.waits && l.meter.Delay(state, at, units) > 0 {
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
			t := l.account.in(sh.index)
			state, at = t.state(sh, t.find(h)), s.at(t, now)
		}
		if !how.full {
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
			if d, ok := b.fastPath(s.seed.hash(l.Key), cost, max(l.Weight, 1), taking{full: true}, l.Answers); ok {
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
		return s.decide(op, parts, cost, nil, nil)
	}
	many := manyParts.Get().(*[stint.MaxLimits]part)
	defer putParts(many)
	parts, err := s.parts(many[:0], layers)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.decide(op, parts, cost, nil, nil)
}

// decide answers op over all parts: it reads all, decides, and writes all or nothing. If
// held is not nil, it is the reservation to make, and its parts note what was charged. If w
// is not nil, the request waits for its turn.
func (s *Store) decide(op meter.Op, parts []part, cost int64, held *reservation, w *waiting) (stint.Decision, error) {
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
			parts[i].adopt(s, now)
		}
	}
	if op == meter.OpTakeUpTo {
		cost = s.upTo(parts, now, cost)
	}
	var by deniers
	for i := range parts {
		if !parts[i].admits(s, now, cost) {
			by.denied |= 1 << uint(i)
			if w == nil && parts[i].excused(s, now, cost) { // a waiter goes by settled costs alone
				by.excused |= 1 << uint(i)
			}
		}
	}
	if w != nil && by.denied == 0 {
		if by.denied = w.delays(s, parts, now, cost); by.denied == 0 && cost > 0 {
			w.passes(s, parts, now, cost)
		}
	}
	if w != nil && by.denied != 0 {
		op = meter.OpPeek // a waiter's denial begins no ban, and is not counted
	}
	var d, own stint.Decision
	for i := range parts {
		p := &parts[i]
		if by.denied == 0 && op != meter.OpPeek && held == nil && w == nil && p.table().cells == nil {
			p.take(s, now, cost, &own)
		} else {
			p.carryOut(s, now, op, cost, by, i, held, w, &own)
		}
		join(&d, &own, p.weight, i)
	}
	d.Denied, d.Taken = by.denied, 0
	if by.denied == 0 && op != meter.OpPeek {
		d.Taken = cost
	}
	return d, nil
}

// take charges a cost that all parts let pass. It decides once more, so it is not for
// tables with overflow cells: two parts may share one that has room for either, but not for
// both, and all parts must be charged.
func (p *part) take(s *Store, now, cost int64, own *stint.Decision) {
	units, _ := satmath.Mul(cost, p.weight)
	if units == 0 {
		*own = p.describe(s, now, 0, true) // a cost of 0 takes no slot
	} else {
		state, at := p.room(s, now, units)
		a, ok := p.limit.meter.TakeAmong(p.sh.openOn(s, p.table(), p.hash), state, at, units)
		own.Set(p.limit.meter, a, ok, units)
	}
	if p.answer != nil {
		*p.answer = *own
	}
}

// deniers are the parts that deny a request. The excused ones of them deny it only because
// of costs that are reserved and not yet settled.
type deniers struct{ denied, excused stint.LimitSet }

// carryOut applies op to part i once it is known which parts deny, and writes the
// part's answer to own.
func (p *part) carryOut(s *Store, now int64, op meter.Op, cost int64, by deniers, i int, held *reservation, w *waiting, own *stint.Decision) {
	units, fits := satmath.Mul(cost, p.weight)
	denied := by.denied
	delay := p.delay(s, now, units)
	switch {
	case op == meter.OpPeek || cost == 0 || denied != 0 && (denied == by.excused || !p.limit.meter.CountsDenied()):
	case denied == 0 && held != nil:
		p.reserve(s, now, units, &held.parts[i])
	default:
		p.charge(s, now, units, denied == 0)
	}
	if w != nil && denied == 0 {
		w.recover(s, p, now, i)
	}
	if denied.Has(i) && !by.excused.Has(i) && op != meter.OpPeek && p.limit.ban != nil && fits && units <= p.limit.meter.Capacity() {
		p.begin(s, now)
	}
	*own = p.describe(s, now, units, denied == 0)
	if denied == 0 {
		own.Delay = delay
	} else if !fits {
		own.RetryAfter = stint.Never
	} else if by.excused.Has(i) {
		own.RetryAfter = min(own.RetryAfter, stint.Wait(meter.ExcusedFor))
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

// excused reports whether the part, which denies a cost, would let it pass if all open
// reservations that excuse denials were given back.
func (p *part) excused(s *Store, now, cost int64) bool {
	units, fits := satmath.Mul(cost, p.weight)
	if !fits || p.limit.ban != nil && p.banned(now) > 0 {
		return false
	}
	state, old := p.look(s, now)
	return old == nil && p.limit.meter.Excused(p.sh.openOn(s, p.table(), p.hash), state, p.at, units)
}

// setAnswer writes the part's own answer to the caller's Layer.Answers.
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
