package stint

import (
	"math/big"
	"time"
)

// Adopt writes into to what a key starts with under this limit when it is first
// met, where from is what it has used under another: the units that are in use,
// up to the new capacity, so that a key that is exhausted stays so, for as long
// as this limit says.
//
//   - Buckets: what was used, a fraction, is used under the new one, rounded up
//     to what that can hold.
//   - Queues: as buckets, and delays that were told stand: the next starts no
//     sooner than one T after the last that was told, as far as the greatest
//     debt reaches.
//   - Windows and counters of the same period, logs, and parts of the same
//     period: units keep their dates, the newest where not all fit.
//   - Otherwise the units are charged now.
//
// Two limits of the same parameters have the same state. For a [SlidingLog] to
// must be as long as from, and at least, as for all others, [Meter.Words] long.
func (m *Meter) Adopt(to, from []uint64, old *Meter, now int64) {
	clear(to)
	t := since(now)
	switch {
	case m.limit.WithName("") == old.limit.WithName(""):
		m.Move(to, from)
	case m.isBucket() && old.isBucket():
		m.adoptBucket(to, from, old, t)
	case m.algorithm != old.algorithm || m.algorithm == TokenBucketInterval:
		m.adoptUndated(to, from, old, now)
	case m.algorithm == SlidingLog:
		old.forget(ring(from), t)
		moveLog(to, from)
		m.forget(ring(to), t)
		ring(to).keep(m.count)
	case m.period != old.period || m.limit.calendar != old.limit.calendar || m.limit.zone != old.limit.zone:
		m.adoptUndated(to, from, old, now)
	case m.algorithm == SlidingSubWindows:
		m.adoptParts(to, from, old, t)
	default:
		copy(to, from)
		for i := range to[1:] {
			to[1+i] = min(to[1+i], m.count)
		}
	}
}

// adoptUndated charges now what was in use.
func (m *Meter) adoptUndated(to, from []uint64, old *Meter, now int64) {
	m.Charge(to, now, int64(min(old.inUse(from, since(now)), uint64(m.capacity))))
}

// Longest returns the time after which a charge counts for nothing, whatever
// was charged before it: the greatest debt's drain, or what windows and parts
// remember.
func (m *Meter) Longest() time.Duration {
	const day = 24 * time.Hour
	switch {
	case m.isBucket():
		return m.nanoseconds(m.maxBacklog)
	case m.algorithm == TokenBucketInterval:
		lumps := mul(2*uint64(m.capacity), 1).ceil(m.count)
		return duration(mul(satAdd(lumps, 1), m.period).floor(1))
	case m.calendar != nil && m.limit.calendar == calendarDay:
		return 2 * day // no day of a zone is as long
	case m.calendar != nil:
		return 33 * day
	case m.algorithm == SlidingLog || m.algorithm == FixedWindow:
		return duration(m.period)
	}
	return duration(satAdd(m.period, m.period))
}

// UsesMore reports whether more units are in use in state than in another, of
// another limit.
func (m *Meter) UsesMore(state []uint64, than []uint64, other *Meter, now int64) bool {
	a, b := m.use(state, since(now)), other.use(than, since(now))
	return a.Cmp(b) > 0
}

// use returns the units in use, of buckets a fraction.
func (m *Meter) use(s []uint64, t uint64) *big.Rat {
	if !m.isBucket() {
		return new(big.Rat).SetInt(whole(m.inUse(s, t)))
	}
	return new(big.Rat).SetFrac(m.backlog(s, t).big(), whole(m.emissionNum))
}

// inUse returns the units that count at t, rounded up.
func (m *Meter) inUse(s []uint64, t uint64) uint64 {
	switch m.algorithm {
	case GCRA, LeakyQueue:
		return m.byEmissionNum.ceil(m.backlog(s, t))
	case TokenBucketInterval:
		missing, _ := m.missing(s, t)
		return missing
	case FixedWindow:
		used, _ := m.counted(s, t)
		return used
	case SlidingCounter:
		p := m.counts(s, t)
		return satAddInt64(p.cur, mul(p.prev, m.left(p)).ceil(m.period))
	case SlidingSubWindows:
		m.slide(s, t)
		return s[1]
	default:
		m.forget(ring(s), t)
		return s[1]
	}
}

func (m *Meter) adoptBucket(to, from []uint64, old *Meter, t uint64) {
	b := old.backlog(from, t)
	if b.zero() {
		return
	}
	kept := ceilQuotient(product(b.big(), whole(m.emissionNum)), whole(old.emissionNum))
	if most := m.burstSpan.big(); kept.Cmp(most) > 0 {
		kept = most
	}
	if m.algorithm == LeakyQueue && old.algorithm == LeakyQueue {
		told := m.afterTold(b, old)
		if told.Cmp(kept) > 0 {
			kept = told
		}
	}
	m.setBacklog(to, t, fromBig(kept))
}

// afterTold returns the backlog with which the next start is one T after the
// last that was told under the limit before.
func (m *Meter) afterTold(b uint128, old *Meter) *big.Int {
	start := b.big()
	start.Sub(start, whole(old.emissionNum))
	told := ceilQuotient(start.Mul(start, whole(m.emissionDen)), whole(old.emissionDen))
	if told.Add(told, whole(m.emissionNum)); told.Cmp(m.maxBacklog.big()) > 0 {
		return m.maxBacklog.big()
	}
	return told
}

// adoptParts puts each count into the new part that holds the end of its old
// one, so that nothing stops counting earlier: the newest first, as many as the
// limit has.
func (m *Meter) adoptParts(to, from []uint64, old *Meter, t uint64) {
	newest := old.slide(from, t)
	to[0] = m.partOf(t)
	for back := range min(old.subWindows, newest) + 1 {
		part := newest - back
		n := min(old.partCount(from, part), m.count-to[1])
		if n == 0 {
			continue
		}
		at := min(mul(part+1, m.subWindows).ceil(old.subWindows)-1, to[0])
		m.setPart(to, at, satAddInt64(m.partCount(to, at), n))
	}
}

func whole(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

func product(factors ...*big.Int) *big.Int {
	p := big.NewInt(1)
	for _, f := range factors {
		p.Mul(p, f)
	}
	return p
}

func ceilQuotient(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func (a uint128) big() *big.Int {
	n := whole(a.hi)
	return n.Add(n.Lsh(n, 64), whole(a.lo))
}

func fromBig(n *big.Int) uint128 {
	lo := new(big.Int).And(n, whole(^uint64(0)))
	return uint128{new(big.Int).Rsh(n, 64).Uint64(), lo.Uint64()}
}
