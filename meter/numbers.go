package meter

import "time"

// The count, the burst and the debt of a bucket, a queue or a bucket filled in lumps
// are its numbers: its state drains by them. Where limits of other numbers share a state,
// whoever keeps it keeps which of them it has. Windows, logs, counters and parts
// hold units with dates, and have none: every limit of the same period, or
// calendar, and parts works on the same state.

// Drains reports whether states of the limit drain by its numbers, evenly over what
// was charged, whenever that was: bucket, queue and the bucket filled in lumps.
func (m *Meter) Drains() bool { return m.drain != nil }

// SameNumbers reports whether a state of one limit is as good for the other, of the
// same algorithm and period.
func (m *Meter) SameNumbers(o *Meter) bool {
	return !m.Drains() || m.count == o.count && m.capacity == o.capacity && m.spec.Debt == o.spec.Debt
}

// Adopt puts the numbers of this limit in force on a state that has those of
// another, of the same algorithm, which drains: the units in use, a fraction, stay in
// use, rounded up to what the state can hold. If they are more than the capacity it
// writes nothing, and returns false. The state must have the words that either needs.
func (m *Meter) Adopt(state []uint64, old *Meter, now int64) bool {
	t := since(now)
	if !m.drain.holds(old, state, t, 0) {
		return false
	}
	m.drain.adopt(old, state, t)
	return true
}

// Through is what this limit says of a state that has the numbers of another, to a
// request of cost units that does not put its own in force: what is in use drains as
// it does, and is held against this capacity.
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

// Longest returns the time after which a charge counts for nothing, whatever
// was charged before it: the greatest debt's drain, or what windows and parts
// remember.
func (m *Meter) Longest() time.Duration { return m.as.longest() }
