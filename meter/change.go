package meter

import (
	"math/big"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// Migrate writes into to what a key starts with under this limit when it is first
// met, where from is what it has used under another: the units that are in use,
// up to the new capacity, so that a key that is exhausted stays so, for as long
// as this limit says.
//
//   - Buckets: what was used, a fraction, is used under the new one, rounded up
//     to what that can hold.
//   - Queues: as buckets, and delays that requests have got stand: the next one
//     starts no sooner than one T after the last of them, as far as the greatest
//     debt reaches.
//   - Windows and counters of the same period, logs, and parts of the same
//     period: units keep their dates, the newest where not all fit.
//   - Otherwise the units are charged now.
//
// Two limits of the same parameters have the same state. For a [SlidingLog] to
// must be as long as from, and at least, as for all others, [Meter.Words] long.
func (m *Meter) Migrate(to, from []uint64, old *Meter, now int64) {
	clear(to)
	t := since(now)
	switch {
	case m.spec == old.spec:
		m.Move(to, from)
	case m.isBucket() && old.isBucket():
		m.migrateBucket(to, from, old, t)
	case m.algorithm != old.algorithm || m.algorithm == TokenBucketInterval:
		m.migrateUndated(to, from, old, now)
	case m.algorithm == SlidingLog:
		old.forget(ring(from), t)
		moveLog(to, from)
		m.forget(ring(to), t)
		ring(to).keep(m.count)
	case m.period != old.period || m.spec.Calendar != old.spec.Calendar || m.spec.Zone != old.spec.Zone:
		m.migrateUndated(to, from, old, now)
	case m.algorithm == SlidingSubWindows:
		m.migrateParts(to, from, old, t)
	default:
		copy(to, from)
		for i := range to[1:] {
			to[1+i] = min(to[1+i], m.count)
		}
	}
}

// migrateUndated charges now what was in use.
func (m *Meter) migrateUndated(to, from []uint64, old *Meter, now int64) {
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
		lumps := uint128.Mul(2*uint64(m.capacity), 1).Ceil(m.count)
		return satmath.Duration(uint128.Mul(satmath.Add(lumps, 1), m.period).Floor(1))
	case m.calendar != nil && m.spec.Calendar == Day:
		return 2 * day // no day of a zone is as long
	case m.calendar != nil:
		return 33 * day
	case m.algorithm == SlidingLog || m.algorithm == FixedWindow:
		return satmath.Duration(m.period)
	}
	return satmath.Duration(satmath.Add(m.period, m.period))
}

// UsesMore reports whether more units are in use in state than in another, of
// another limit.
func (m *Meter) UsesMore(state []uint64, than []uint64, other *Meter, now int64) bool {
	a, b := m.use(state, since(now)), other.use(than, since(now))
	return a.Cmp(b) > 0
}

// InUse returns the units in use, rounded up, and at most the limit's capacity.
func (m *Meter) InUse(state []uint64, now int64) int64 {
	return int64(min(m.inUse(state, since(now)), uint64(m.capacity)))
}

// use returns the units in use, of buckets a fraction.
func (m *Meter) use(s []uint64, t uint64) *big.Rat {
	if !m.isBucket() {
		return new(big.Rat).SetInt(bigInt(m.inUse(s, t)))
	}
	return new(big.Rat).SetFrac(m.backlog(s, t).Big(), bigInt(m.emissionNum))
}

// inUse returns the units that count at t, rounded up.
func (m *Meter) inUse(s []uint64, t uint64) uint64 {
	switch m.algorithm {
	case GCRA, LeakyQueue:
		return m.byEmissionNum.Ceil(m.backlog(s, t))
	case TokenBucketInterval:
		missing, _ := m.missing(s, t)
		return missing
	case FixedWindow:
		used, _ := m.counted(s, t)
		return used
	case SlidingCounter:
		p := m.counts(s, t)
		return satmath.AddInt64(p.cur, uint128.Mul(p.prev, m.left(p)).Ceil(m.period))
	case SlidingSubWindows:
		m.slide(s, t)
		return s[1]
	default:
		m.forget(ring(s), t)
		return s[1]
	}
}

func (m *Meter) migrateBucket(to, from []uint64, old *Meter, t uint64) {
	b := old.backlog(from, t)
	if b.Zero() {
		return
	}
	kept := ceilQuotient(product(b.Big(), bigInt(m.emissionNum)), bigInt(old.emissionNum))
	if most := m.burstSpan.Big(); kept.Cmp(most) > 0 {
		kept = most
	}
	if m.algorithm == LeakyQueue && old.algorithm == LeakyQueue {
		later := m.afterLastStart(b, old)
		if later.Cmp(kept) > 0 {
			kept = later
		}
	}
	m.setBacklog(to, t, uint128.FromBig(kept))
}

// afterLastStart returns the backlog with which the next start is one T after the
// last start that a request got under the limit before.
func (m *Meter) afterLastStart(b uint128.Int, old *Meter) *big.Int {
	start := b.Big()
	start.Sub(start, bigInt(old.emissionNum))
	backlog := ceilQuotient(start.Mul(start, bigInt(m.emissionDen)), bigInt(old.emissionDen))
	if backlog.Add(backlog, bigInt(m.emissionNum)); backlog.Cmp(m.maxBacklog.Big()) > 0 {
		return m.maxBacklog.Big()
	}
	return backlog
}

// migrateParts puts each count into the new part that holds the end of its old
// one, so that nothing stops counting earlier: the newest first, as many as the
// limit has.
func (m *Meter) migrateParts(to, from []uint64, old *Meter, t uint64) {
	newest := old.slide(from, t)
	to[0] = m.partOf(t)
	for back := range min(old.subWindows, newest) + 1 {
		part := newest - back
		n := min(old.partCount(from, part), m.count-to[1])
		if n == 0 {
			continue
		}
		at := min(uint128.Mul(part+1, m.subWindows).Ceil(old.subWindows)-1, to[0])
		m.setPart(to, at, satmath.AddInt64(m.partCount(to, at), n))
	}
}

func bigInt(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

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
