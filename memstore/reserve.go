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

// reservations are the costs that are still to be settled, and those that were
// and are remembered until they expire. Its lock is taken before any shard's.
type reservations struct {
	mu      sync.Mutex
	byToken map[stint.ReservationID]*reservation
	byKey   map[place]*reservedLayer // the first of each key's, which are linked
	byEnd   ends
	open    int
	most    int            // that may be open, and as many that are remembered
	settled []*reservation // in the order in which they were, also those forgotten since
	known   int            // of settled, how many are remembered
}

// A place is a key under a name.
type place struct {
	name *name
	hash uint64
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
	token   stint.ReservationID
	layers  []reservedLayer
	cost    int64
	expires int64 // on the store's clock
	end     int   // place in byEnd; -1 once forgotten
	settled bool
	answer  stint.Decision // once settled
}

// A reservedLayer is where one layer of a reservation was charged.
type reservedLayer struct {
	place
	limit      *limit
	bound      *bound // keeps the limit
	sh         *shard
	key        string
	weight     int64
	of         *reservation
	prev, next *reservedLayer // on the same key

	apart  bool         // of a view of one limit by itself
	turn   uint32       // of the key, when it was charged: see kin
	number uint64       // of the charge, among those of reservations in its shard
	meter  *meter.Meter // that charged
	cells  *[]uint64    // the overflow cells, if one was charged
	mark   meter.ChargeRef
	open   *openKey // nil if it has no part in any
}

func (rs *reservations) init(most int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.byToken, rs.byKey, rs.byEnd = make(map[stint.ReservationID]*reservation), make(map[place]*reservedLayer), nil
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
	rs.byToken[r.token] = r
	heap.Push(&rs.byEnd, r)
	rs.open++
	for i := range r.layers {
		l := &r.layers[i]
		if l.next = rs.byKey[l.place]; l.next != nil {
			l.next.prev = l
		}
		rs.byKey[l.place] = l
	}
}

// forget releases a reservation. If it is open, it stands as charged.
func (rs *reservations) forget(s *Store, r *reservation) {
	if r.settled {
		rs.known--
	} else {
		rs.open--
		for i := range r.layers {
			l := &r.layers[i]
			l.sh.mu.Lock()
			l.close(s, true)
			l.sh.mu.Unlock()
		}
	}
	delete(rs.byToken, r.token)
	heap.Remove(&rs.byEnd, r.end)
	for i := range r.layers {
		rs.unlink(&r.layers[i])
		r.layers[i].limit.form.holders.Add(-1)
	}
	r.layers = nil // releases the limits too
}

func (rs *reservations) unlink(l *reservedLayer) {
	if l.next != nil {
		l.next.prev = l.prev
	}
	switch {
	case l.prev != nil:
		l.prev.next = l.next
	case l.next != nil:
		rs.byKey[l.place] = l.next
	default:
		delete(rs.byKey, l.place)
	}
}

// remember keeps the answer of a reservation that was just settled, and forgets
// the oldest beyond as many as may be open.
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
	rs, err := s.requests(nil, layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	now := s.clock.now()
	if all.expire(s, now); !s.closed.Load() && all.open >= all.most {
		s.fullReservations.Add(1)
		return stint.Decision{}, "", fmt.Errorf("%w: %d reservations are open", stint.ErrFull, all.open)
	}
	r := &reservation{cost: cost, expires: now + min(int64(ttl), math.MaxInt64-max(now, 0)), layers: make([]reservedLayer, len(rs))}
	for i := range rs {
		r.layers[i] = reservedLayer{place: place{rs[i].limit.form.name, rs[i].hash}, limit: rs[i].limit, bound: rs[i].bound, sh: rs[i].sh, key: rs[i].key, weight: rs[i].weight, apart: rs[i].apart, of: r}
	}
	d, err := s.decide(meter.OpTake, rs, cost, r)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	for i := range r.layers {
		r.layers[i].limit.form.holders.Add(1)
	}
	r.token = stint.ReservationID(rand.Text())
	all.add(r)
	return d, r.token, nil
}

// reserve charges the request's layer what l may settle at less.
func (r *request) reserve(s *Store, now, units int64, l *reservedLayer) {
	state, at := r.room(s, now, units)
	t := r.table()
	r.sh.reserved++
	l.number, l.meter = r.sh.reserved, t.meter
	if t.find(r.hash) == nil {
		l.cells = t.cells
	}
	if !t.meter.Rewrites() {
		var none meter.Reservations
		l.mark = t.meter.Reserve(&none, state, at, units, l.of.expires)
		return
	}
	l.open = r.sh.keepOpen(s, t, r.hash)
	l.mark = t.meter.Reserve(&l.open.Reservations, state, at, units, l.of.expires)
}

// close takes the layer from the open ones of its key.
func (l *reservedLayer) close(s *Store, stands bool) {
	if t := l.limit.tables[l.sh.index]; t != nil && l.current(s, t) {
		l.meter.Close(&l.open.Reservations, l.mark, stands)
		l.left(s, t)
	}
	l.open = nil
}

// current reports whether the layer is still one of the open ones of its key.
func (l *reservedLayer) current(s *Store, t *table) bool {
	return l.open != nil && l.sh.openOn(s, t, l.hash) == l.open
}

// left is called when the layer is not open any more.
func (l *reservedLayer) left(s *Store, t *table) {
	if l.open.Len() == 0 {
		l.sh.dropOpen(s, t, l.hash, l.open)
	}
	l.open = nil
}

// Settle implements [stint.Store].
func (s *Store) Settle(_ context.Context, token stint.ReservationID, cost int64) (stint.Decision, error) {
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
	r := all.byToken[token]
	if r == nil {
		return stint.Decision{}, stint.ErrReservation
	}
	if r.settled {
		return r.answer, nil
	}
	rs := make([]request, len(r.layers))
	for i, l := range r.layers {
		rs[i] = l.bound.request(&view{apart: l.apart}, l.limit, l.hash, l.key)
		rs[i].weight = l.weight
	}
	if cost > r.cost {
		r.answer = s.adjust(rs, func(i int, now int64) {
			if i == 0 {
				s.meet(rs, now)
			}
			reserved, actual := rs[i].units(r.cost), rs[i].units(cost)
			r.layers[i].settle(s, &rs[i], now, reserved, actual)
		}, func(now int64) {
			s.countedMore(rs, now, func(i int) int64 { return rs[i].units(cost) - rs[i].units(r.cost) })
		})
	} else {
		r.answer = s.adjust(rs, func(i int, now int64) {
			r.layers[i].settle(s, &rs[i], now, rs[i].units(r.cost), rs[i].units(cost))
		}, nil)
	}
	all.remember(s, r)
	return r.answer, nil
}

// settle makes the charge of one layer what it truly cost. It changes nothing
// below the reserved cost where the limit has changed since, or where the state
// that was charged is not the key's any more; what is above is charged anyway.
func (l *reservedLayer) settle(s *Store, r *request, now, reserved, actual int64) {
	r.seek(s, now)
	if actual > reserved {
		r.room(s, now, actual-reserved)
	}
	if r.slot == nil || !l.stands(s, r.table()) {
		l.close(s, actual > 0)
		if actual > reserved {
			r.charge(s, now, actual-reserved, false)
		}
		return
	}
	open := &meter.Reservations{}
	if l.open != nil {
		open = &l.open.Reservations
	}
	l.meter.Settle(open, l.mark, r.table().state(r.sh, r.slot), r.at, reserved, actual)
	if l.open != nil {
		l.left(s, r.table())
	}
}

// stands reports whether the state that the layer charged is that of its key.
func (l *reservedLayer) stands(s *Store, t *table) bool {
	switch {
	case l.turn != l.sh.turn(l.limit, l.hash):
		return false
	case l.open != nil:
		return l.current(s, t)
	case t.meter != l.meter || l.meter.Rewrites():
		return false
	case t.find(l.hash) != nil:
		return l.cells == nil
	}
	return l.cells != nil && l.cells == t.cells
}

// adjust does something to every layer at one instant and answers with the
// state after it.
func (s *Store) adjust(rs []request, do func(i int, now int64), elsewhere func(now int64)) stint.Decision {
	defer s.watchers.roomMade(rs)
	now := s.lock(rs)
	defer s.unlock(rs)
	var d stint.Decision
	for i := range rs {
		do(i, now)
		rs[i].seek(s, now)
		answer := describe(rs[i].table().meter, rs[i].state(s, now), rs[i].at, 0, true)
		if rs[i].answer != nil {
			*rs[i].answer = answer
		}
		join(&d, &answer, rs[i].weight, i)
	}
	if elsewhere != nil {
		elsewhere(now)
	}
	return d
}

// countedMore counts under the other forms of the keys what was charged beyond
// what was reserved.
func (s *Store) countedMore(rs []request, now int64, units func(i int) int64) {
	for i := range rs {
		if rs[i].limit.tables[rs[i].sh.index].several {
			rs[i].sh.decided(s, rs[i].limit.form, rs[i].hash)
		}
	}
	s.elsewhere(rs, now, true, units, (*meter.Meter).Charge)
}

// units returns what a cost of the request is in units of its layer.
func (r *request) units(cost int64) int64 {
	units, _ := satmath.Mul(cost, r.weight)
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
	rs, err := s.requests(nil, layers)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.adjust(rs, func(i int, now int64) {
		if i == 0 { // before the answers: what a key would start with comes from there
			s.elsewhere(rs, now, false, func(i int) int64 { return rs[i].units(cost) }, (*meter.Meter).Refund)
			s.refundHeld(rs, cost)
		}
		r := &rs[i]
		if r.seek(s, now); r.slot != nil {
			t := r.table()
			t.meter.Refund(t.state(r.sh, r.slot), r.at, r.units(cost))
		}
	}, nil), nil
}

// Reset implements [stint.Store]. Reservations on the keys are forgotten too.
// A key on an overflow cell shares that with others, and keeps what it says.
func (s *Store) Reset(_ context.Context, layers []stint.Layer) error {
	if s.closed.Load() {
		return stint.ErrClosed
	}
	rs, err := s.requests(nil, layers)
	if err != nil {
		return err
	}
	all := &s.reservations
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range rs {
		at := place{rs[i].limit.form.name, rs[i].hash}
		for l := all.byKey[at]; l != nil; l = all.byKey[at] {
			all.forget(s, l.of)
		}
	}
	defer s.watchers.roomMade(rs)
	s.lock(rs)
	defer s.unlock(rs)
	for i := range rs {
		rs[i].reset(s)
	}
	return nil
}

// reset forgets the key, under all forms.
func (r *request) reset(s *Store) {
	r.limit.form.forget(s, r.sh, r.hash)
	k := r.sh.kin(r.limit.form.name)
	if k == nil {
		return
	}
	delete(k.held, r.hash)
	met := k.met(r.hash)
	for _, g := range met {
		g.forget(s, r.sh, r.hash)
	}
	if k.remove(r.hash); met != nil || k.all {
		return
	}
	for g := range k.forms {
		g.forget(s, r.sh, r.hash)
	}
}
