package meter

import (
	"math/big"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// The generic cell rate algorithm, for buckets and the queue. The state is the theoretical arrival
// time (TAT): the moment at which the bucket is full again or the queue empty. A request of cost c
// passes at t when
//
//	max(tat, t) + c·T − t ≤ capacity·T = burst span
//
// Then tat becomes max(tat, t) + c·T (ITU-T I.371, the virtual scheduling form). The capacity is
// the burst. A queue has room for one more: the request that starts.
//
// T = period/count is a fraction, emissionNum/emissionDen in lowest terms, so times are kept in
// units of 1/emissionDen ns. A state is one word where emissionDen is 1 and the drain is short
// (narrow); otherwise it is tat·emissionDen in two words, high word first.
//
// backlog = max(tat − t, 0) is what has been used and has not drained yet. It is never more than
// what the capacity and the greatest debt take to drain.

var bucketKind = kind{
	name: "gcra", aliases: []string{"token_bucket", "leaky_bucket"}, options: Burst | Debt,
	evenly: true, of: newBucket,
}

// A bucket is a meter of [GCRA] or [LeakyQueue].
type bucket Meter

func newBucket(m *Meter) arithmetic {
	g := gcd(m.count, m.period)
	m.emissionNum, m.emissionDen = m.period/g, m.count/g
	m.byEmissionNum, m.byEmissionDen = uint128.NewDivisor(m.emissionNum), uint128.NewDivisor(m.emissionDen)
	m.burstSpan = uint128.Mul(uint64(m.capacity), m.emissionNum)
	m.maxBacklog = uint128.Mul(m.deepest, m.emissionNum)
	m.narrow = m.emissionDen == 1 && m.maxBacklog.Hi == 0 && m.maxBacklog.Lo <= 1<<61
	m.wide = !m.narrow
	return (*bucket)(m)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (m *bucket) words() int {
	if m.narrow {
		return 1
	}
	return 2
}

func (m *bucket) longest() time.Duration { return m.nanoseconds(m.maxBacklog) }

func (*bucket) sound([]uint64) bool { return true }

// backlog returns what has been used and has not drained yet. A state that is further ahead than
// maxBacklog comes from a clock fault. It is cut to maxBacklog and written back, so that it drains
// from now on.
func (m *bucket) backlog(s []uint64, t uint64) uint128.Int {
	if m.narrow {
		s[0] = (*Meter)(m).mend(s[0], t)
		return uint128.From(satmath.Sub(s[0], t))
	}
	b := uint128.Int{Hi: s[0], Lo: s[1]}.Sub(uint128.Mul(t, m.emissionDen))
	if m.maxBacklog.Less(b) {
		m.setBacklog(s, t, m.maxBacklog)
		return m.maxBacklog
	}
	return b
}

// mend brings a TAT of one word back into the range that a sound clock can produce.
func (m *Meter) mend(tat, t uint64) uint64 {
	if satmath.Sub(tat, t) > m.maxBacklog.Lo {
		return t + m.maxBacklog.Lo
	}
	return tat
}

func (m *bucket) setBacklog(s []uint64, t uint64, b uint128.Int) {
	if m.narrow {
		s[0] = t + b.Lo
		return
	}
	tat := uint128.Mul(t, m.emissionDen).Add(b)
	s[0], s[1] = tat.Hi, tat.Lo
}

// TakeWord is [Meter.Allow] on a state of one word, which it takes and returns by value, for
// callers that keep states in atomics. [Meter.Words] must be 1.
func (m *Meter) TakeWord(tat uint64, now, cost int64) (uint64, bool) {
	if cost <= 0 {
		return tat, true
	}
	if cost > m.capacity {
		return tat, false
	}
	t, need := since(now), uint64(cost)*m.emissionNum
	if tat <= t {
		return t + need, true
	}
	if tat-t <= m.burstSpan.Lo-need {
		return tat + need, true
	}
	return m.mend(tat, t), false
}

// DecideWord is [Meter.Take] on a state of one word, which it takes and returns by value.
func (m *Meter) DecideWord(tat uint64, now, cost int64) (state uint64, a Answer, ok bool) {
	t := since(now)
	tat = m.mend(tat, t)
	before := satmath.Sub(tat, t)
	used := before
	if cost > m.capacity {
		a.RetryAfter = Never
	} else if after := before + uint64(max(cost, 0))*m.emissionNum; after > m.burstSpan.Lo && cost > 0 {
		a.RetryAfter = time.Duration(after - m.burstSpan.Lo)
	} else {
		ok = true
		if cost > 0 {
			used, tat = after, t+after
			if m.queues {
				a.Delay = time.Duration(before)
			}
		}
	}
	a.Remaining = int64(m.byEmissionNum.Quo(satmath.Sub(m.burstSpan.Lo, used)))
	a.ResetAfter = time.Duration(used)
	return tat, a, ok
}

// wideCharge charges a state of two words if the cost passes. It returns the backlog before and
// after.
func (m *bucket) wideCharge(s []uint64, t uint64, cost int64) (before, after uint128.Int, ok bool) {
	before = m.backlog(s, t)
	if cost <= 0 {
		return before, before, true
	}
	if cost > m.capacity {
		return before, before, false
	}
	after = before.Add(uint128.Mul(uint64(cost), m.emissionNum))
	if m.burstSpan.Less(after) {
		return before, before, false
	}
	m.setBacklog(s, t, after)
	return before, after, true
}

// wideTake is [Meter.Take] on a state of two words.
func (m *bucket) wideTake(s []uint64, t uint64, cost int64) (a Answer, ok bool) {
	before, after, ok := m.wideCharge(s, t, cost)
	switch {
	case ok:
		if m.queues && cost > 0 {
			a.Delay = m.nanoseconds(before)
		}
	case cost > m.capacity:
		a.RetryAfter = Never
	default:
		a.RetryAfter = m.wait(s, t, uint64(cost))
	}
	a.Remaining = int64(m.byEmissionNum.Floor(m.burstSpan.Sub(after)))
	a.ResetAfter = m.nanoseconds(after)
	return a, ok
}

func (m *bucket) admits(s []uint64, t, c uint64) bool {
	used := m.backlog(s, t).Add(uint128.Mul(c, m.emissionNum))
	return !m.burstSpan.Less(used)
}

func (m *bucket) charge(s []uint64, t, c uint64) {
	if c == 0 {
		return
	}
	used := m.maxBacklog
	if c <= m.deepest {
		used = uint128.Min(m.backlog(s, t).Add(uint128.Mul(c, m.emissionNum)), m.maxBacklog)
	}
	m.setBacklog(s, t, used)
}

func (m *bucket) level(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	b := m.backlog(s, t)
	return int64(m.byEmissionNum.Floor(m.burstSpan.Sub(b))), m.nanoseconds(b)
}

// nanoseconds rounds a stretch in units of 1/emissionDen ns up to whole ones.
func (m *bucket) nanoseconds(b uint128.Int) time.Duration {
	return satmath.Duration(m.byEmissionDen.Ceil(b))
}

func (m *bucket) wait(s []uint64, t, c uint64) time.Duration {
	over := m.backlog(s, t).Add(uint128.Mul(c, m.emissionNum)).Sub(m.burstSpan)
	return m.nanoseconds(over)
}

// measure returns amount·T, at most the greatest backlog.
func (m *bucket) measure(amount uint64) uint128.Int {
	if amount > m.deepest {
		return m.maxBacklog
	}
	return uint128.Mul(amount, m.emissionNum)
}

func (m *bucket) lower(s []uint64, t uint64, by uint128.Int) {
	if b := m.backlog(s, t); !b.Zero() {
		m.setBacklog(s, t, b.Sub(by))
	}
}

func (m *bucket) refund(s []uint64, t, n uint64) { m.lower(s, t, m.measure(n)) }

func (m *bucket) idle(s []uint64, t uint64) bool {
	if m.narrow {
		return s[0] <= t
	}
	return !uint128.Mul(t, m.emissionDen).Less(uint128.Int{Hi: s[0], Lo: s[1]})
}

func (*bucket) stamp([]uint64, uint64) uint64 { return 0 }

func (m *bucket) giveBack(r *Reservations, mark ChargeRef, s []uint64, t, n uint64) {
	(*Meter)(m).drainBack(r, mark, s, t, n)
}

func (m *bucket) chargeAmong(r *Reservations, s []uint64, t, c uint64, hasDelay bool) {
	(*Meter)(m).drainAmong(r, s, t, c, hasDelay)
}

func (m *bucket) inUse(s []uint64, t uint64) uint128.Int { return m.backlog(s, t) }

func (m *bucket) holds(old *Meter, s []uint64, t, c uint64) bool {
	room := uint128.Mul(uint64(m.capacity)-c, old.emissionNum)
	return !room.Less((*bucket)(old).backlog(s, t))
}

func (m *bucket) adopt(old *Meter, s []uint64, t uint64) {
	b := m.converted((*bucket)(old).backlog(s, t), old)
	clear(s)
	m.setBacklog(s, t, b)
}

func (m *bucket) through(from *Meter, s []uint64, t, c uint64, ok bool) (a Answer) {
	old := (*bucket)(from)
	b := old.backlog(s, t)
	a.Remaining = int64(satmath.Sub(uint64(m.capacity), old.byEmissionNum.Ceil(b)))
	a.ResetAfter = old.nanoseconds(b)
	switch {
	case !ok:
		a.RetryAfter = old.nanoseconds(b.Sub(uint128.Mul(uint64(m.capacity)-c, old.emissionNum)))
	case c > 0 && m.queues:
		a.Delay = m.nanoseconds(m.converted(b, from))
	}
	return a
}

// converted returns the backlog in this limit that holds as many units as b does in the limit old,
// rounded up. The units are no more than the capacity.
func (m *bucket) converted(b uint128.Int, old *Meter) uint128.Int {
	if b.Hi == 0 {
		if p := uint128.Mul(b.Lo, m.emissionNum); p.Hi == 0 || p.Hi+1 < old.emissionNum { // one word is enough
			return uint128.From(p.Ceil(old.emissionNum))
		}
	}
	units, rest := new(big.Int), new(big.Int)
	units.Mul(b.Big(), new(big.Int).SetUint64(m.emissionNum))
	if units.QuoRem(units, new(big.Int).SetUint64(old.emissionNum), rest); rest.Sign() > 0 {
		units.Add(units, big.NewInt(1))
	}
	return uint128.FromBig(units)
}
