package stint

import "math/big"

// Adopt writes into to what a state kept under an older form of the limit is
// under this one. No change mints more than the new full.
//
//   - Bucket and queue: the time until full is kept, rounded up to what the new
//     limit can hold, and clamped to one drain of it.
//   - Windows, logs and parts of the same period: the counts are kept.
//   - A change of the kind, or of a window's period, starts fresh.
//
// For a [SlidingLog] to must be as long as from; else [Meter.Words] long.
func (m *Meter) Adopt(to, from []uint64, old *Meter, now int64) {
	clear(to)
	if !m.limit.Keeps(old.limit) {
		return
	}
	t := since(now)
	switch m.kind {
	case GCRA, LeakyQueue:
		m.adoptBucket(to, from, old, t)
	case TokenBucketInterval:
		m.adoptInterval(to, from, old, t)
	case SlidingBuckets:
		m.adoptParts(to, from, old, t)
	case SlidingLog:
		moveLog(to, from)
		ring(to).keep(m.count)
	default:
		copy(to, from)
	}
}

func (m *Meter) adoptBucket(to, from []uint64, old *Meter, t uint64) {
	b := old.backlog(from, t)
	if b.zero() {
		return
	}
	kept := ceilQuotient(product(b.big(), whole(m.div)), whole(old.div))
	if kept.Cmp(m.full.big()) > 0 {
		kept = m.full.big()
	}
	m.setBacklog(to, t, fromBig(kept))
}

// adoptInterval keeps missing/L·W, the time that filling up takes on average.
func (m *Meter) adoptInterval(to, from []uint64, old *Meter, t uint64) {
	missing, _ := old.missing(from, t)
	if missing == 0 {
		return
	}
	kept := ceilQuotient(
		product(whole(missing), whole(old.period), whole(m.count)),
		product(whole(old.count), whole(m.period)))
	if full := whole(uint64(m.capacity)); kept.Cmp(full) > 0 {
		kept = full
	}
	to[0], to[1] = kept.Uint64(), m.byPeriods.quo(t)
}

// adoptParts puts each count into the new part that holds the end of its old
// one, so that nothing stops counting earlier.
func (m *Meter) adoptParts(to, from []uint64, old *Meter, t uint64) {
	newest := old.slide(from, t)
	to[0] = m.partOf(t)
	for part := less(newest, old.cuts); part <= newest; part++ {
		n := old.partCount(from, part)
		if n == 0 {
			continue
		}
		at := min(mul(part+1, m.cuts).ceil(old.cuts)-1, to[0])
		m.setPart(to, at, plus(m.partCount(to, at), n))
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
