package meter

import (
	"slices"
	"sort"

	"github.com/stint-dev/stint/internal/uint128"
)

// Reservations are the charges on one state whose actual cost is not known yet, in the order in
// which they were made. Until the last of them is settled, the state must be charged through
// [Meter.TakeAmong] and [Meter.ChargeAmong]. The zero value holds none. The lock that guards the
// state also guards its Reservations.
//
// To settle a charge is to rewrite history: the state becomes what it would be had the charge been
// its true cost from the beginning, with every other decision as it was. A bucket does this without
// a history, by how low its backlog has been since. Had a charge been d less, the backlog would
// have been d lower until it reached zero; from then on both histories differ by at most what was
// left. So each open charge keeps low: the least backlog between it and the next open charge. What
// charge j gives back passes through low j, low j+1 and so on, each of which lets through at most
// itself.
//
// Price: 32 bytes for each open charge; to settle one takes time in proportion to the open charges
// made after it. Beyond 1,024 open charges, neighbours become one, which gives back less, never more.
// In a queue they do not, since only the last charge can give back.
type Reservations struct {
	open    []openCharge
	excuses []excuse // in the order of their charges
	next    uint64   // the number of the next charge
	// Charges with a lower number than forgone give nothing back.
	forgone uint64
	// In a log, charges made from cutFrom until cutAt count as if made at cutAt.
	cutFrom, cutAt uint64
}

// An openCharge is one open charge, or neighbours that became one.
type openCharge struct {
	first uint64      // the number of the charge, or of the first of the neighbours
	left  int         // how many of the neighbours are still open
	low   uint128.Int // the least backlog, or missing tokens, up to the next charge
}

// mostOpen is the greatest number of open charges that are kept apart.
const mostOpen = 1024

// A ChargeRef identifies a charge for [Meter.Settle].
type ChargeRef [2]uint64 // its number and its stamp

// Len returns how many charges are kept. A charge that excuses denials counts twice.
func (r *Reservations) Len() int {
	if r == nil {
		return 0
	}
	return len(r.open) + len(r.excuses)
}

func (r *Reservations) find(mark ChargeRef) int {
	return sort.Search(len(r.open), func(i int) bool { return r.open[i].first > mark[0] }) - 1
}

// low returns the least backlog between charge i and the next open one.
func (r *Reservations) low(i int) uint128.Int {
	if r.open[i].first < r.forgone {
		return uint128.Int{}
	}
	return r.open[i].low
}

// pair makes one charge of every two neighbours. It keeps the lesser low of both, through which all
// that they give back passes; alone, the later charge might give back more.
func (r *Reservations) pair() {
	n := 0
	for i := 0; i < len(r.open); i += 2 {
		o := r.open[i]
		if i+1 < len(r.open) {
			later := r.open[i+1]
			o.left += later.left
			o.low = uint128.Min(r.low(i), r.low(i+1))
		}
		r.open[n] = o
		n++
	}
	r.open = r.open[:n]
}

// Reserve charges cost units that may be settled at less, and returns a reference to the charge.
func (m *Meter) Reserve(r *Reservations, state []uint64, now, cost int64) ChargeRef {
	mark := ChargeRef{r.next, m.as.stamp(state, since(now))}
	m.ChargeAmong(r, state, now, cost, false)
	if cost <= 0 {
		return mark
	}
	r.next++
	if !m.Rewrites() {
		return mark
	}
	if len(r.open) >= mostOpen && !m.queues {
		r.pair()
	}
	o := openCharge{first: mark[0], left: 1}
	if m.drain != nil {
		o.low = m.drain.inUse(state, since(now))
	}
	r.open = append(r.open, o)
	return mark
}

// Rewrites reports whether what a reservation gives back depends on later charges, so that open
// reservations must be kept. Otherwise the reservation's window or part gives back what it still
// counts.
func (m *Meter) Rewrites() bool { return m.rewrite != nil }

// Settle closes a reservation of reserved units at its actual cost. If actual is less, the
// difference is given back as if it had never been charged. If it is more, the difference is
// charged now, even if there is no room for it.
func (m *Meter) Settle(r *Reservations, mark ChargeRef, state []uint64, now, reserved, actual int64) {
	if actual < reserved {
		m.as.giveBack(r, mark, state, since(now), uint64(reserved-actual))
	}
	if reserved > 0 {
		m.Close(r, mark, actual > 0)
	}
	if actual > reserved {
		m.ChargeAmong(r, state, now, actual-reserved, false)
	}
}

// Close removes a reservation from the open ones. Stands says whether any of it stays charged.
func (m *Meter) Close(r *Reservations, mark ChargeRef, stands bool) {
	r.excuseNoMore(mark)
	i := r.find(mark)
	if i < 0 {
		return
	}
	if m.queues && stands {
		r.forgone = max(r.forgone, r.open[i].first) // requests behind them keep their delays
	}
	if r.open[i].left--; r.open[i].left > 0 {
		return
	}
	if i > 0 {
		r.open[i-1].low = uint128.Min(r.open[i-1].low, r.low(i))
	}
	r.open = slices.Delete(r.open, i, i+1)
}

// TakeAmong is [Meter.Take] on a state with open reservations; r may be nil.
func (m *Meter) TakeAmong(r *Reservations, state []uint64, now, cost int64) (a Answer, ok bool) {
	if r.Len() == 0 {
		return m.Take(state, now, cost)
	}
	ok = m.Admits(state, now, cost)
	delay, excused := m.Delay(state, now, cost), !ok && m.Excused(r, state, now, cost)
	if ok || m.spec.CountDenied && !excused {
		m.ChargeAmong(r, state, now, cost, ok)
	}
	a = m.Answer(state, now, cost, ok)
	if ok {
		a.Delay = delay
	} else if excused {
		a.RetryAfter = min(a.RetryAfter, ExcusedFor)
	}
	return a, ok
}

// ChargeAmong is [Meter.Charge] on a state with open reservations; r may be nil. hasDelay says that
// the charge is not a debt, but for a request that has its delay in a queue. In a queue, reservations
// before such a request give nothing back.
func (m *Meter) ChargeAmong(r *Reservations, state []uint64, now, cost int64, hasDelay bool) {
	if r.Len() == 0 || m.rewrite == nil {
		m.Charge(state, now, cost)
		return
	}
	m.rewrite.chargeAmong(r, state, since(now), uint64(max(cost, 0)), hasDelay)
}

// drainAmong is chargeAmong for a drainer.
func (m *Meter) drainAmong(r *Reservations, s []uint64, t, c uint64, hasDelay bool) {
	m.note(r, s, t)
	before := m.drain.inUse(s, t)
	m.as.charge(s, t, c)
	if m.cutsOff(before, c) || hasDelay && c > 0 && m.queues {
		r.forgone = r.next
	}
}

// note notes the present backlog as the low of the newest open charge, if it is less.
func (m *Meter) note(r *Reservations, state []uint64, t uint64) {
	if len(r.open) > 0 {
		last := &r.open[len(r.open)-1]
		last.low = uint128.Min(last.low, m.drain.inUse(state, t))
	}
}

// cutsOff reports whether a charge of c would raise the backlog above the greatest debt.
func (m *Meter) cutsOff(used uint128.Int, c uint64) bool {
	return c > m.deepest || m.drain.measure(m.deepest).Less(used.Add(m.drain.measure(c)))
}

// drainBack is giveBack for a drainer.
func (m *Meter) drainBack(r *Reservations, mark ChargeRef, s []uint64, t, n uint64) {
	i := r.find(mark)
	if i < 0 || m.queues && i < len(r.open)-1 {
		return // in a queue, requests behind keep their delays
	}
	m.note(r, s, t)
	back := m.drain.measure(n)
	for k := i; k < len(r.open); k++ {
		back = uint128.Min(back, r.low(k))
		r.open[k].low = r.low(k).Sub(back)
	}
	m.drain.lower(s, t, back)
}
