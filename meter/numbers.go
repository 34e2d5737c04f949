package meter

import "time"

// The count, the burst and the debt of a bucket, of a queue or of a bucket filled in lumps are its
// rate parameters: its state drains by them. Limits of other rate parameters may share a state, so
// whoever keeps the state also keeps the rate parameters in force. Windows, logs, counters and
// parts hold units with dates and need no rate parameters: all limits with the same period or
// calendar, and the same number of parts, work on one state.

// Drains reports whether states drain by the limit's rate parameters, evenly over all charges,
// whenever they were made. That is so for the bucket, the queue and the bucket filled in lumps.
func (m *Meter) Drains() bool { return m.drain != nil }

// SameNumbers reports whether two limits of one algorithm and period can work on one state without
// conversion.
func (m *Meter) SameNumbers(o *Meter) bool {
	return !m.Drains() || m.count == o.count && m.capacity == o.capacity && m.spec.Debt == o.spec.Debt
}

// Adopt converts a state from the rate parameters of old, of the same algorithm, to those of this
// limit, which must drain. The units in use, a fraction, stay in use, rounded up to what the state
// can hold. If they exceed the capacity, Adopt writes nothing and returns false. The state must have
// as many words as either limit needs.
func (m *Meter) Adopt(state []uint64, old *Meter, now int64) bool {
	t := since(now)
	if !m.drain.holds(old, state, t, 0) {
		return false
	}
	m.drain.adopt(old, state, t)
	return true
}

// Through returns what this limit says to a request of cost units where the state keeps the rate
// parameters of another limit, old: what is in use drains at the rate of old, and is held against
// the capacity of this limit.
func (m *Meter) Through(state []uint64, old *Meter, now, cost int64) (a Answer, ok bool) {
	t, c := since(now), uint64(max(cost, 0))
	if cost > m.capacity {
		a = m.drain.through(old, state, t, 0, true)
		a.RetryAfter = Never
		return a, false
	}
	ok = c == 0 || m.drain.holds(old, state, t, c)
	return m.drain.through(old, state, t, c, ok), ok
}

// Longest returns the longest time for which a charge counts, whatever was charged before it: the
// drain of the greatest debt, or the windows that a state remembers.
func (m *Meter) Longest() time.Duration { return m.as.longest() }
