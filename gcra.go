package stint

import "time"

// The generic cell rate algorithm, for buckets and the queue. The state is the
// theoretical arrival time (TAT): the moment at which the bucket is full again
// or the queue empty. A request of cost c passes at t when
//
//	max(tat, t) + c·T − t ≤ capacity·T
//
// and then tat becomes max(tat, t) + c·T (ITU-T I.371, the virtual scheduling
// form). T = period/count is rational, emissionNum/emissionDen in lowest terms, so times are
// kept in units of 1/emissionDen ns: one word where emissionDen is 1 and the drain is short
// (narrow), else tat·emissionDen in two words, high word first.
//
// backlog = max(tat − t, 0) is what has been used and not yet forgiven; it is
// never more than two drains: one, and one of debt.

// backlog returns what has been used and not yet forgiven. A state that lies
// further ahead than can be is brought back to there: else each later look
// would find it as far ahead again.
func (m *Meter) backlog(s []uint64, t uint64) uint128 {
	if m.narrow {
		s[0] = m.mend(s[0], t)
		return uint128{0, satSub(s[0], t)}
	}
	b := uint128{s[0], s[1]}.sub(mul(t, m.emissionDen))
	if m.maxBacklog.less(b) {
		m.setBacklog(s, t, m.maxBacklog)
		return m.maxBacklog
	}
	return b
}

// mend brings a state of one word back to where it can be.
func (m *Meter) mend(tat, t uint64) uint64 {
	if satSub(tat, t) > m.maxBacklog.lo {
		return t + m.maxBacklog.lo
	}
	return tat
}

func (m *Meter) setBacklog(s []uint64, t uint64, b uint128) {
	if m.narrow {
		s[0] = t + b.lo
		return
	}
	tat := mul(t, m.emissionDen).add(b)
	s[0], s[1] = tat.hi, tat.lo
}

// TakeWord is [Meter.Allow] on a state of one word, by value, for callers that
// keep it in an atomic. [Meter.Words] must be 1.
func (m *Meter) TakeWord(tat uint64, now, cost int64) (uint64, bool) {
	t := since(now)
	if cost <= 0 {
		return tat, true
	}
	if cost > m.capacity {
		return tat, false
	}
	tat = m.mend(tat, t)
	used := satSub(tat, t) + uint64(cost)*m.emissionNum
	if used > m.burstSpan.lo {
		return tat, false
	}
	return t + used, true
}

// narrowAnswer is [Meter.Take] on a state of one word.
func (m *Meter) narrowAnswer(d *Decision, s []uint64, t uint64, cost int64) {
	*d = Decision{Limit: m.capacity}
	s[0] = m.mend(s[0], t)
	before := satSub(s[0], t)
	used := before
	if cost > m.capacity {
		d.RetryAfter, d.Denied = Never, 1
	} else if after := before + uint64(max(cost, 0))*m.emissionNum; after > m.burstSpan.lo && cost > 0 {
		d.RetryAfter, d.Denied = Wait(after-m.burstSpan.lo), 1
	} else {
		d.Allowed = true
		if cost > 0 {
			used, d.Taken, s[0] = after, cost, t+after
			if m.algorithm == LeakyQueue {
				d.Delay = time.Duration(before)
			}
		}
	}
	d.Remaining = int64(m.byEmissionNum.quo(satSub(m.burstSpan.lo, used)))
	d.ResetAfter = time.Duration(used)
}

// wideTake is a take on a state of two words. It returns the backlog before it
// and after it.
func (m *Meter) wideTake(s []uint64, t uint64, cost int64) (before, after uint128, ok bool) {
	before = m.backlog(s, t)
	if cost <= 0 {
		return before, before, true
	}
	if cost > m.capacity {
		return before, before, false
	}
	after = before.add(mul(uint64(cost), m.emissionNum))
	if m.burstSpan.less(after) {
		return before, before, false
	}
	m.setBacklog(s, t, after)
	return before, after, true
}

// wideAnswer is [Meter.Take] on a state of two words.
func (m *Meter) wideAnswer(d *Decision, s []uint64, t uint64, cost int64) {
	before, after, ok := m.wideTake(s, t, cost)
	*d = Decision{Limit: m.capacity, Allowed: ok}
	switch {
	case ok:
		d.Taken = max(cost, 0)
		if m.algorithm == LeakyQueue && cost > 0 {
			d.Delay = m.nanoseconds(before)
		}
	case cost > m.capacity:
		d.RetryAfter, d.Denied = Never, 1
	default:
		d.RetryAfter, d.Denied = m.bucketWait(s, t, uint64(cost)), 1
	}
	d.Remaining = int64(m.byEmissionNum.floor(m.burstSpan.sub(after)))
	d.ResetAfter = m.nanoseconds(after)
}

func (m *Meter) bucketAdmits(s []uint64, t, c uint64) bool {
	used := m.backlog(s, t).add(mul(c, m.emissionNum))
	return !m.burstSpan.less(used)
}

func (m *Meter) bucketCharge(s []uint64, t, c uint64) {
	if c == 0 {
		return
	}
	used := m.maxBacklog
	if c <= 2*uint64(m.capacity) {
		used = smaller(m.backlog(s, t).add(mul(c, m.emissionNum)), m.maxBacklog)
	}
	m.setBacklog(s, t, used)
}

func (m *Meter) bucketLevel(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	b := m.backlog(s, t)
	return int64(m.byEmissionNum.floor(m.burstSpan.sub(b))), m.nanoseconds(b)
}

// nanoseconds rounds a stretch in units of 1/emissionDen ns up to whole ones.
func (m *Meter) nanoseconds(b uint128) time.Duration { return duration(m.byEmissionDen.ceil(b)) }

func (m *Meter) bucketWait(s []uint64, t, c uint64) Wait {
	over := m.backlog(s, t).add(mul(c, m.emissionNum)).sub(m.burstSpan)
	return Wait(m.nanoseconds(over))
}

func (m *Meter) bucketRefund(s []uint64, t uint64, amount uint64) {
	m.bucketLower(s, t, m.units(amount))
}

// units returns amount·T, held at the greatest backlog.
func (m *Meter) units(amount uint64) uint128 {
	if amount > 2*uint64(m.capacity) {
		return m.maxBacklog
	}
	return mul(amount, m.emissionNum)
}

func (m *Meter) bucketLower(s []uint64, t uint64, by uint128) {
	if b := m.backlog(s, t); !b.zero() {
		m.setBacklog(s, t, b.sub(by))
	}
}

func (m *Meter) bucketIdle(s []uint64, t uint64) bool {
	if m.narrow {
		return s[0] <= t
	}
	return !mul(t, m.emissionDen).less(uint128{s[0], s[1]})
}
