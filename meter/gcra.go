package meter

import (
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// The generic cell rate algorithm, for buckets and the queue. The state is the
// theoretical arrival time (TAT): the moment at which the bucket is full again
// or the queue empty. A request of cost c passes at t when
//
//	max(tat, t) + c·T − t ≤ capacity·T = burst span
//
// where capacity is the burst, and for a queue burst + 1: what waits, and the one that
// starts. Then tat becomes max(tat, t) + c·T (ITU-T I.371, the virtual scheduling
// form). T = period/count is rational, emissionNum/emissionDen in lowest terms, so times are
// kept in units of 1/emissionDen ns: one word where emissionDen is 1 and the drain is short
// (narrow), else tat·emissionDen in two words, high word first.
//
// backlog = max(tat − t, 0) is what has been used and not yet forgiven; it is
// never more than the drain of the capacity and of the greatest debt.

// backlog returns what has been used and not yet forgiven. A state that is further
// ahead than maxBacklog is a clock fault. It is cut to that, and written, so that it
// shrinks from now on.
func (m *Meter) backlog(s []uint64, t uint64) uint128.Int {
	if m.narrow {
		s[0] = m.mend(s[0], t)
		return uint128.From(satmath.Sub(s[0], t))
	}
	b := uint128.Int{Hi: s[0], Lo: s[1]}.Sub(uint128.Mul(t, m.emissionDen))
	if m.maxBacklog.Less(b) {
		m.setBacklog(s, t, m.maxBacklog)
		return m.maxBacklog
	}
	return b
}

// mend brings a state of one word back to where it can be.
func (m *Meter) mend(tat, t uint64) uint64 {
	if satmath.Sub(tat, t) > m.maxBacklog.Lo {
		return t + m.maxBacklog.Lo
	}
	return tat
}

func (m *Meter) setBacklog(s []uint64, t uint64, b uint128.Int) {
	if m.narrow {
		s[0] = t + b.Lo
		return
	}
	tat := uint128.Mul(t, m.emissionDen).Add(b)
	s[0], s[1] = tat.Hi, tat.Lo
}

// TakeWord is [Meter.Allow] on a state of one word, by value, for callers that
// keep it in an atomic. [Meter.Words] must be 1.
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

// narrowTake is [Meter.Take] on a state of one word.
func (m *Meter) narrowTake(s []uint64, t uint64, cost int64) (a Answer, ok bool) {
	s[0] = m.mend(s[0], t)
	before := satmath.Sub(s[0], t)
	used := before
	if cost > m.capacity {
		a.RetryAfter = Never
	} else if after := before + uint64(max(cost, 0))*m.emissionNum; after > m.burstSpan.Lo && cost > 0 {
		a.RetryAfter = time.Duration(after - m.burstSpan.Lo)
	} else {
		ok = true
		if cost > 0 {
			used, s[0] = after, t+after
			if m.algorithm == LeakyQueue {
				a.Delay = time.Duration(before)
			}
		}
	}
	a.Remaining = int64(m.byEmissionNum.Quo(satmath.Sub(m.burstSpan.Lo, used)))
	a.ResetAfter = time.Duration(used)
	return a, ok
}

// wideCharge is a take on a state of two words. It returns the backlog before it
// and after it.
func (m *Meter) wideCharge(s []uint64, t uint64, cost int64) (before, after uint128.Int, ok bool) {
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
func (m *Meter) wideTake(s []uint64, t uint64, cost int64) (a Answer, ok bool) {
	before, after, ok := m.wideCharge(s, t, cost)
	switch {
	case ok:
		if m.algorithm == LeakyQueue && cost > 0 {
			a.Delay = m.nanoseconds(before)
		}
	case cost > m.capacity:
		a.RetryAfter = Never
	default:
		a.RetryAfter = m.bucketWait(s, t, uint64(cost))
	}
	a.Remaining = int64(m.byEmissionNum.Floor(m.burstSpan.Sub(after)))
	a.ResetAfter = m.nanoseconds(after)
	return a, ok
}

func (m *Meter) bucketAdmits(s []uint64, t, c uint64) bool {
	used := m.backlog(s, t).Add(uint128.Mul(c, m.emissionNum))
	return !m.burstSpan.Less(used)
}

func (m *Meter) bucketCharge(s []uint64, t, c uint64) {
	if c == 0 {
		return
	}
	used := m.maxBacklog
	if c <= m.deepest {
		used = uint128.Min(m.backlog(s, t).Add(uint128.Mul(c, m.emissionNum)), m.maxBacklog)
	}
	m.setBacklog(s, t, used)
}

func (m *Meter) bucketLevel(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	b := m.backlog(s, t)
	return int64(m.byEmissionNum.Floor(m.burstSpan.Sub(b))), m.nanoseconds(b)
}

// nanoseconds rounds a stretch in units of 1/emissionDen ns up to whole ones.
func (m *Meter) nanoseconds(b uint128.Int) time.Duration {
	return satmath.Duration(m.byEmissionDen.Ceil(b))
}

func (m *Meter) bucketWait(s []uint64, t, c uint64) time.Duration {
	over := m.backlog(s, t).Add(uint128.Mul(c, m.emissionNum)).Sub(m.burstSpan)
	return m.nanoseconds(over)
}

// units returns amount·T, held at the greatest backlog.
func (m *Meter) units(amount uint64) uint128.Int {
	if amount > m.deepest {
		return m.maxBacklog
	}
	return uint128.Mul(amount, m.emissionNum)
}

func (m *Meter) bucketLower(s []uint64, t uint64, by uint128.Int) {
	if b := m.backlog(s, t); !b.Zero() {
		m.setBacklog(s, t, b.Sub(by))
	}
}

func (m *Meter) bucketIdle(s []uint64, t uint64) bool {
	if m.narrow {
		return s[0] <= t
	}
	return !uint128.Mul(t, m.emissionDen).Less(uint128.Int{Hi: s[0], Lo: s[1]})
}
