package stint

import "math/big"

// Adopt writes into to what a state kept under an older form of the limit is
// under this one: the units that were in use are, as far as the greatest debt
// reaches, so that a limit that is lowered and raised again mints nothing.
//
//   - Buckets: what was used, a fraction, is used under the new one, rounded up
//     to what that can hold.
//   - Queues: as buckets, and delays that were told stand: the next starts no
//     sooner than one T after the last that was told.
//   - Windows and counters of the same period, logs, and parts of the same
//     period: units keep their dates.
//   - Otherwise the units are charged now.
//
// For a [SlidingLog] to must be as long as from, and at least, as for all other
// algorithms, [Meter.Words] long.
func (m *Meter) Adopt(to, from []uint64, old *Meter, now int64) {
	clear(to)
	t := since(now)
	switch {
	case m.isBucket() && old.isBucket():
		m.adoptBucket(to, from, old, t)
	case m.algorithm != old.algorithm || m.algorithm == TokenBucketInterval:
		m.Charge(to, now, int64(old.inUse(from, t)))
	case m.algorithm == SlidingLog:
		old.forget(ring(from), t)
		moveLog(to, from)
		m.forget(ring(to), t)
		ring(to).keep(m.count)
	case m.period != old.period || m.limit.calendar != old.limit.calendar || m.limit.zone != old.limit.zone:
		m.Charge(to, now, int64(old.inUse(from, t)))
	case m.algorithm == SlidingSubWindows:
		m.adoptParts(to, from, old, t)
	default:
		copy(to, from)
	}
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
	if most := m.maxBacklog.big(); kept.Cmp(most) > 0 {
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
// one, so that nothing stops counting earlier.
func (m *Meter) adoptParts(to, from []uint64, old *Meter, t uint64) {
	newest := old.slide(from, t)
	to[0] = m.partOf(t)
	for part := satSub(newest, old.subWindows); part <= newest; part++ {
		n := old.partCount(from, part)
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
