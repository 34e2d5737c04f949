package memstore

import (
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A singleStore is a [Single] as a store of one key, for the limiter that waits
// and reserves.
type singleStore struct{ *Single }

var _ stint.Store = singleStore{}

// mostSingleCharges is how many reservations of a Single may be open. As many that
// were settled are remembered beside them.
const mostSingleCharges = 65_536

// singleCharges are the reservations of a Single, and those that wait for what
// they give back. The Single's lock guards them.
type singleCharges struct {
	open     meter.Reservations
	byID     map[stint.ReservationID]*singleCharge
	byEnd    chargeHeap
	settled  []*singleCharge // in the order in which they were, also those forgotten since
	known    int             // of settled, how many are remembered
	watchers map[*watcher]struct{}
}

type singleCharge struct {
	id      stint.ReservationID
	form    *meter.Meter // that charged
	mark    meter.ChargeRef
	cost    int64
	expires int64
	end     int // place in byEnd; -1 once forgotten
	settled bool
	lost    bool // gives nothing back: the limit has changed
	answer  stint.Decision
}

// expire forgets reservations whose time is over.
func (c *singleCharges) expire(now int64) {
	for len(c.byEnd) > 0 && c.byEnd[0].expires <= now {
		r := c.byEnd[0]
		if c.forget(r); !r.settled && !r.lost && r.cost > 0 {
			r.form.Close(&c.open, r.mark, true)
		}
	}
}

func (c *singleCharges) forget(r *singleCharge) {
	delete(c.byID, r.id)
	heap.Remove(&c.byEnd, r.end)
	if r.settled {
		c.known--
	}
}

// remember keeps the answer of a reservation that was just settled, and forgets those
// that were settled before as many others.
func (c *singleCharges) remember(r *singleCharge, answer stint.Decision) {
	r.settled, r.answer = true, answer
	c.settled, c.known = append(c.settled, r), c.known+1
	for len(c.settled) > 0 && (c.known > mostSingleCharges || c.settled[0].end < 0) {
		if old := c.settled[0]; old.end >= 0 {
			c.forget(old)
		}
		c.settled[0] = nil
		c.settled = c.settled[1:]
	}
	if len(c.settled) > 2*c.known+64 {
		c.settled = slices.DeleteFunc(c.settled, func(r *singleCharge) bool { return r.end < 0 })
	}
}

// forgo makes all reservations such as give nothing back.
func (c *singleCharges) forgo() {
	c.open = meter.Reservations{}
	for _, r := range c.byID {
		r.lost = true
	}
}

// Bind implements [stint.Store].
func (s singleStore) Bind(string, ...stint.Limit) (stint.Bound, error) { return singleBound{s}, nil }

// Decide implements [stint.Store].
func (s singleStore) Decide(_ context.Context, op meter.Op, _ []stint.Layer, cost int64) (stint.Decision, error) {
	return s.decide(op, cost)
}

func (s singleStore) decide(op meter.Op, cost int64) (d stint.Decision, err error) {
	if cost < 0 {
		return d, stint.ErrCost
	}
	if op == meter.OpTake {
		return s.Take(cost)
	}
	s.mu.Lock()
	f := s.locked()
	defer s.release(f)
	if f.verdict != byLimit {
		return f.verdict.answer(cost), nil
	}
	now := s.ready(f, cost)
	if op == meter.OpTakeUpTo {
		cost = max(min(cost, s.describe(f, now, 0, true).Remaining), min(cost, 1))
		return s.take(f, now, cost), nil
	}
	old := s.foreign(f, now)
	if old == nil {
		state := s.mine(f)
		ok := f.meter.Admits(state, now, cost)
		if d = describe(f.meter, state, now, cost, ok); ok {
			d.Delay = f.meter.Delay(state, now, cost)
		}
		return d, nil
	}
	a, ok := f.meter.Through(s.state, old, now, cost)
	d.Set(f.meter, a, ok, 0)
	return d, nil
}

// Reserve implements [stint.Store].
func (s singleStore) Reserve(_ context.Context, _ []stint.Layer, cost int64, ttl time.Duration) (d stint.Decision, id stint.ReservationID, err error) {
	switch {
	case cost < 0:
		return d, "", stint.ErrCost
	case ttl <= 0:
		return d, "", errTTL
	}
	s.mu.Lock()
	f := s.locked()
	defer s.release(f)
	if f.verdict != byLimit {
		return f.verdict.answer(cost), "", nil
	}
	now, c := s.ready(f, cost), &s.charges
	if cost > 0 {
		s.putInForce(f, now)
	}
	if s.foreign(f, now) != nil && cost > 0 || !f.meter.Admits(s.mine(f), now, cost) {
		return s.take(f, now, cost), "", nil
	}
	if open := len(c.byID) - c.known; open >= mostSingleCharges {
		return d, "", fmt.Errorf("%w: %d reservations are open", stint.ErrFull, open)
	}
	delay, at := f.meter.Delay(s.mine(f), now, cost), s.clock.now()
	r := &singleCharge{
		id: stint.ReservationID(rand.Text()), form: f.meter, cost: cost,
		expires: at + min(int64(ttl), math.MaxInt64-max(at, 0)),
	}
	if cost > 0 {
		r.mark = f.meter.Reserve(&c.open, s.state, now, cost)
	}
	d = s.describe(f, now, cost, true)
	d.Taken, d.Delay = cost, delay
	if c.byID == nil {
		c.byID = make(map[stint.ReservationID]*singleCharge)
	}
	c.byID[r.id] = r
	heap.Push(&c.byEnd, r)
	return d, r.id, nil
}

// Settle implements [stint.Store].
func (s singleStore) Settle(_ context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	defer s.wakeWaiters()
	s.mu.Lock()
	f := s.locked()
	defer s.release(f)
	now := s.ready(f, cost)
	r := s.charges.byID[id]
	switch {
	case r == nil:
		return stint.Decision{}, stint.ErrReservation
	case r.settled:
		return r.answer, nil
	case r.lost && cost > r.cost:
		if s.foreign(f, now) == nil {
			s.putInForce(f, now)
		}
		s.numbers.ChargeAmong(&s.charges.open, s.state, now, cost-r.cost, false)
	case !r.lost:
		r.form.Settle(&s.charges.open, r.mark, s.state, now, r.cost, cost)
	}
	s.charges.remember(r, s.describe(f, now, 0, true))
	return r.answer, nil
}

// Refund implements [stint.Store].
func (s singleStore) Refund(_ context.Context, _ []stint.Layer, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	defer s.wakeWaiters()
	s.mu.Lock()
	f := s.locked()
	defer s.release(f)
	now := s.ready(f, 0)
	s.numbers.Refund(s.state, now, cost)
	return s.describe(f, now, 0, true), nil
}

// Reset implements [stint.Store].
func (s singleStore) Reset(context.Context, []stint.Layer) error {
	defer s.wakeWaiters()
	s.mu.Lock()
	f := s.locked()
	defer s.release(f)
	s.charges.forgo()
	clear(s.state)
	return nil
}

// Close implements [stint.Store].
func (s singleStore) Close() error { return nil }

// Watch calls wake whenever something else than time may have made room.
func (s singleStore) Watch(_ stint.Bound, _ string, wake func()) (stop func()) {
	w := &watcher{wake}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.charges.watchers == nil {
		s.charges.watchers = make(map[*watcher]struct{})
	}
	s.charges.watchers[w] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.charges.watchers, w)
	}
}

// wakeWaiters has all waiters try again. The lock is not held.
func (s *Single) wakeWaiters() {
	s.mu.Lock()
	waiting := slices.Collect(maps.Keys(s.charges.watchers))
	s.mu.Unlock()
	wakeAll(waiting)
}

// A singleBound is the limit of a Single, as bound in its store.
type singleBound struct{ s singleStore }

func (b singleBound) Decide(_ context.Context, op meter.Op, _ string, cost int64) (stint.Decision, error) {
	return b.s.decide(op, cost)
}

func (b singleBound) Allow(_ context.Context, _ string, cost int64) (bool, error) {
	d, err := b.s.Take(cost)
	return d.Allowed, err
}

func (b singleBound) Limits() []stint.Limit { return []stint.Limit{b.s.Limit()} }
func (b singleBound) Name() string          { return "single" }

// Unchanged reports whether limits are what Limits returns.
func (b singleBound) Unchanged(limits []stint.Limit) bool {
	return len(limits) == 1 && limits[0] == b.s.Limit()
}

// A chargeHeap has the reservation that expires first on top.
type chargeHeap []*singleCharge

func (h chargeHeap) Len() int           { return len(h) }
func (h chargeHeap) Less(i, j int) bool { return h[i].expires < h[j].expires }
func (h chargeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].end, h[j].end = i, j
}
func (h *chargeHeap) Push(r any) {
	r.(*singleCharge).end = len(*h)
	*h = append(*h, r.(*singleCharge))
}
func (h *chargeHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	r.end = -1
	return r
}
