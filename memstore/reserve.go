package memstore

import (
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// reservations are the open ones, still to be settled, and settled ones that are
// remembered until they expire. Its lock is taken before any shard's.
type reservations struct {
	mu      sync.Mutex
	byID    map[stint.ReservationID]*reservation
	byKey   map[stateKey]*reservedPart // the first part of each key; next leads to the others
	byEnd   ends
	open    int
	most    int            // how many may be open, and how many settled ones are remembered
	settled []*reservation // in the order they were settled, some of them forgotten since
	known   int            // how many in settled are remembered
}

// A stateKey is a key of an account.
type stateKey struct {
	account *account
	hash    uint64
}

// ends is a heap of reservations by when they expire, the first on top.
type ends []*reservation

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].expires < e[j].expires }
func (e ends) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].end, e[j].end = i, j
}
func (e *ends) Push(x any) {
	r := x.(*reservation)
	r.end = len(*e)
	*e = append(*e, r)
}
func (e *ends) Pop() any {
	last := len(*e) - 1
	r := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	r.end = -1
	return r
}

type reservation struct {
	id      stint.ReservationID
	parts   []reservedPart
	cost    int64
	expires int64 // on the store's clock
	end     int   // index in byEnd; -1 once forgotten
	settled bool
	answer  stint.Decision // once settled
}

// A reservedPart is where one part of a reservation was charged. It holds its limit.
type reservedPart struct {
	stateKey
	limit      *limit
	sh         *shard
	weight     int64
	of         *reservation
	prev, next *reservedPart // on the same key

	number uint64    // counts the charges of reservations in its shard
	cells  *[]uint64 // the overflow cells of the table, if one of them was charged
	mark   meter.ChargeRef
	open   *meter.Reservations // where mark is kept: of a meter that rewrites, else while it excuses denials
}

func (rs *reservations) init(most int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.byID, rs.byKey, rs.byEnd = make(map[stint.ReservationID]*reservation), make(map[stateKey]*reservedPart), nil
	rs.settled, rs.known, rs.open, rs.most = nil, 0, 0, most
}

// count returns how many are open.
func (rs *reservations) count(s *Store) int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.expire(s, s.clock.now())
	return rs.open
}

// expire forgets the reservations that have expired.
func (rs *reservations) expire(s *Store, now int64) {
	for len(rs.byEnd) > 0 && rs.byEnd[0].expires <= now {
		rs.forget(s, rs.byEnd[0])
	}
}

func (rs *reservations) add(r *reservation) {
	rs.byID[r.id] = r
	heap.Push(&rs.byEnd, r)
	rs.open++
	for i := range r.parts {
		l := &r.parts[i]
		if l.next = rs.byKey[l.stateKey]; l.next != nil {
			l.next.prev = l
		}
		rs.byKey[l.stateKey] = l
	}
}

// forget releases a reservation. If it is open, it stands as charged.
func (rs *reservations) forget(s *Store, r *reservation) {
	if r.settled {
		rs.known--
	} else {
		rs.open--
		for i := range r.parts {
			l := &r.parts[i]
			l.sh.mu.Lock()
			l.close(s, true)
			l.sh.mu.Unlock()
		}
	}
	delete(rs.byID, r.id)
	heap.Remove(&rs.byEnd, r.end)
	for i := range r.parts {
		rs.unlink(&r.parts[i])
		r.parts[i].limit.holders.Add(-1)
	}
	r.parts = nil // releases the limits too
}

func (rs *reservations) unlink(l *reservedPart) {
	if l.next != nil {
		l.next.prev = l.prev
	}
	switch {
	case l.prev != nil:
		l.prev.next = l.next
	case l.next != nil:
		rs.byKey[l.stateKey] = l.next
	default:
		delete(rs.byKey, l.stateKey)
	}
}

// remember keeps the answer of a reservation that was just settled, and forgets the
// oldest settled ones beyond most.
func (rs *reservations) remember(s *Store, r *reservation) {
	r.settled = true
	rs.open--
	rs.known++
	rs.settled = append(rs.settled, r)
	for len(rs.settled) > 0 && (rs.known > rs.most || rs.settled[0].end < 0) {
		if old := rs.settled[0]; old.end >= 0 {
			rs.forget(s, old)
		}
		rs.settled[0] = nil
		rs.settled = rs.settled[1:]
	}
	if len(rs.settled) > 2*rs.known+64 {
		rs.settled = slices.DeleteFunc(rs.settled, func(r *reservation) bool { return r.end < 0 })
	}
}

// Reserve implements [stint.Store].
func (s *Store) Reserve(_ context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	if ttl <= 0 {
		return stint.Decision{}, "", errTTL
	}
	parts, err := s.parts(nil, layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	return s.reserve(parts, layers, cost, ttl, nil)
}

// reserve reserves cost in all parts of the layers. If w is not nil, the request waits for its
// turn.
func (s *Store) reserve(parts []part, layers []stint.Layer, cost int64, ttl time.Duration, w *waiting) (stint.Decision, stint.ReservationID, error) {
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	now := s.clock.now()
	if all.expire(s, now); !s.closed.Load() && all.open >= all.most {
		s.fullReservations.Add(1)
		return stint.Decision{}, "", fmt.Errorf("%w: %d reservations are open", stint.ErrFull, all.open)
	}
	for i := range layers {
		if raised := layers[i].Raises; raised != "" && all.byID[raised] == nil {
			return stint.Decision{}, "", stint.ErrReservation
		}
	}
	r := &reservation{cost: cost, expires: now + min(int64(ttl), math.MaxInt64-max(now, 0)), parts: make([]reservedPart, len(parts))}
	for i := range parts {
		p := &parts[i]
		p.excuse = min(p.excuse, ttl)
		r.parts[i] = reservedPart{stateKey: stateKey{p.limit.account, p.hash}, limit: p.limit, sh: p.sh, weight: p.weight, of: r}
	}
	d, err := s.decide(meter.OpTake, parts, cost, r, w)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	for i := range r.parts {
		r.parts[i].limit.holders.Add(1)
	}
	r.id = stint.ReservationID(rand.Text())
	all.add(r)
	return d, r.id, nil
}

// reserve charges the part, and notes in l what it takes to settle the charge at less.
func (p *part) reserve(s *Store, now, units int64, l *reservedPart) {
	state, at := p.room(s, now, units)
	t, m := p.table(), p.charger()
	p.sh.reserved++
	l.number = p.sh.reserved
	if t.find(p.hash) == nil {
		l.cells = t.cells
	}
	if !m.Rewrites() && p.excuse <= 0 || !m.SameNumbers(p.limit.meter) { // charged by other parameters, it gives nothing back
		var none meter.Reservations
		l.mark = m.Reserve(&none, state, at, units)
		return
	}
	l.open = p.sh.keepOpen(s, t, p.hash)
	l.mark = m.Reserve(l.open, state, at, units)
	l.open.Excuse(l.mark, units, at, at+min(int64(p.excuse), math.MaxInt64-max(at, 0)))
}

// close takes the part from the open charges of its key.
func (l *reservedPart) close(s *Store, stands bool) {
	if t := l.account.in(l.sh.index); t != nil && l.current(s, t) {
		l.limit.meter.Close(l.open, l.mark, stands)
		l.left(s, t)
	}
	l.open = nil
}

// current reports whether the part is still among the open charges of its key.
func (l *reservedPart) current(s *Store, t *table) bool {
	return l.open != nil && l.sh.openOn(s, t, l.hash) == l.open
}

// left is called when the part is no open charge any more.
func (l *reservedPart) left(s *Store, t *table) {
	if l.open.Len() == 0 {
		l.sh.dropOpen(s, t, l.hash, l.open)
	}
	l.open = nil
}

// Settle implements [stint.Store].
func (s *Store) Settle(_ context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if s.closed.Load() {
		return stint.Decision{}, stint.ErrClosed
	}
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	all.expire(s, s.clock.now())
	r := all.byID[id]
	if r == nil {
		return stint.Decision{}, stint.ErrReservation
	}
	if r.settled {
		return r.answer, nil
	}
	parts := make([]part, len(r.parts))
	for i, l := range r.parts {
		parts[i] = part{limit: l.limit, sh: l.sh, hash: l.hash, weight: l.weight}
	}
	r.answer = s.adjust(parts, func(i int, now int64) {
		r.parts[i].settle(s, &parts[i], now, parts[i].units(r.cost), parts[i].units(cost))
	})
	all.remember(s, r)
	return r.answer, nil
}

// settle replaces the reserved charge of one part by the actual one. It gives nothing back
// if the state drains by other parameters since, or is not the key's state any more; an
// actual cost above the reserved one is charged in any case.
func (l *reservedPart) settle(s *Store, p *part, now, reserved, actual int64) {
	p.seek(s, now)
	if actual > reserved {
		p.room(s, now, actual-reserved)
	}
	if p.slot == nil || !l.stands(s, p.table()) {
		l.close(s, actual > 0)
		if actual > reserved {
			p.charge(s, now, actual-reserved, false)
		}
		return
	}
	open := l.open
	if !l.current(s, p.table()) { // what excused denials is gone, the charge is not
		l.open, open = nil, &meter.Reservations{}
	}
	l.limit.meter.Settle(open, l.mark, p.table().state(p.sh, p.slot), p.at, reserved, actual)
	if l.open != nil {
		l.left(s, p.table())
	}
}

// stands reports whether the state that the part charged is still its key's state.
func (l *reservedPart) stands(s *Store, t *table) bool {
	switch {
	case l.limit.meter.Rewrites():
		return l.current(s, t)
	case t.find(l.hash) != nil:
		return l.cells == nil
	}
	return l.cells != nil && l.cells == t.cells
}

// adjust calls do for every part at one instant, and answers with the states after it.
func (s *Store) adjust(parts []part, do func(i int, now int64)) stint.Decision {
	defer s.watchers.roomMade(parts)
	now := s.lock(parts)
	defer s.unlock(parts)
	var d stint.Decision
	for i := range parts {
		do(i, now)
		answer := parts[i].describe(s, now, 0, true)
		if parts[i].answer != nil {
			*parts[i].answer = answer
		}
		join(&d, &answer, parts[i].weight, i)
	}
	return d
}

// units converts a cost of the request to units of the part.
func (p *part) units(cost int64) int64 {
	units, _ := satmath.Mul(cost, p.weight)
	return units
}

// Refund implements [stint.Store].
func (s *Store) Refund(_ context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if s.closed.Load() {
		return stint.Decision{}, stint.ErrClosed
	}
	parts, err := s.parts(nil, layers)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.adjust(parts, func(i int, now int64) {
		p := &parts[i]
		if p.seek(s, now); p.slot != nil {
			p.charger().Refund(p.table().state(p.sh, p.slot), p.at, p.units(cost))
		}
	}), nil
}

// Reset implements [stint.Store]. Reservations on the keys are forgotten too. The
// state of a key on an overflow cell stays as it is: other keys share it.
func (s *Store) Reset(_ context.Context, layers []stint.Layer) error {
	if s.closed.Load() {
		return stint.ErrClosed
	}
	parts, err := s.parts(nil, layers)
	if err != nil {
		return err
	}
	states := s.statesOf(parts)
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, at := range states {
		for l := all.byKey[at]; l != nil; l = all.byKey[at] {
			all.forget(s, l.of)
		}
	}
	defer s.watchers.roomMade(parts)
	s.lock(parts)
	defer s.unlock(parts)
	for _, at := range states {
		sh := &s.shards[s.shard(at.hash)]
		if t := at.account.in(sh.index); t != nil && t.find(at.hash) != nil {
			sh.forgotten(s, t, at.hash)
			t.delete(sh, at.hash)
		}
	}
	return nil
}

// statesOf returns the states that a reset forgets. They are all states of the keys under
// the name, bans and former limits too; for a bound of one limit among others (Apart), they
// are the state of that limit and its ban.
func (s *Store) statesOf(parts []part) (states []stateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range parts {
		p := &parts[i]
		if v := p.bound.view.Load(); len(v.limits) == len(v.whole) {
			for _, a := range p.bound.name.accounts {
				states = append(states, stateKey{a, p.hash})
			}
			continue
		}
		states = append(states, stateKey{p.limit.account, p.hash})
		if bans := p.limit.account.bans.Load(); bans != nil {
			states = append(states, stateKey{bans, p.hash})
		}
	}
	return states
}
