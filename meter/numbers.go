package meter

import (
	"math/big"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// The count, the burst and the debt of a bucket, a queue or a bucket filled in lumps
// are its numbers: its state drains by them. Where limits of other numbers share a state,
// whoever keeps it keeps which of them it has. Windows, logs, counters and parts
// hold units with dates, and have none: every limit of the same period, or
// calendar, and parts works on the same state.

// Drains reports whether states of the limit drain by its numbers, evenly over what
// was charged, whenever that was: bucket, queue and the bucket filled in lumps.
func (m *Meter) Drains() bool { return m.isBucket() || m.algorithm == TokenBucketInterval }

// SameNumbers reports whether a state of one limit is as good for the other, of the
// same algorithm and period.
func (m *Meter) SameNumbers(o *Meter) bool {
	return !m.Drains() || m.count == o.count && m.capacity == o.capacity && m.spec.Debt == o.spec.Debt
}

// Adopt puts the numbers of this limit in force on a state that has those of
// another: the units in use, a fraction, stay in use, rounded up to what the state
// can hold. If they are more than the capacity it writes nothing, and returns false.
// The state must have the words that either needs.
func (m *Meter) Adopt(state []uint64, old *Meter, now int64) bool {
	t := since(now)
	if !m.holds(state, old, t, 0) {
		return false
	}
	if m.algorithm == TokenBucketInterval {
		state[0], state[1] = old.missing(state, t)
		return true
	}
	b := m.converted(old.backlog(state, t), old)
	clear(state)
	m.setBacklog(state, t, b)
	return true
}

// Through is what this limit says of a state that has the numbers of another, to a
// request of cost units that does not put its own in force: what is in use drains as
// it does, and is held against this capacity.
func (m *Meter) Through(state []uint64, old *Meter, now, cost int64) (a Answer, ok bool) {
	t, c := since(now), uint64(max(cost, 0))
	if ok = c == 0 || cost <= m.capacity && m.holds(state, old, t, c); !ok {
		a.RetryAfter = Never
	}
	waits := !ok && cost <= m.capacity
	if m.algorithm == TokenBucketInterval {
		missing, index := old.missing(state, t)
		a.Remaining = int64(satmath.Sub(uint64(m.capacity), missing))
		if missing > 0 {
			a.ResetAfter = satmath.Duration(old.lumpsUntil(missing, index, t))
		}
		if waits {
			a.RetryAfter = satmath.Duration(old.lumpsUntil(missing-(uint64(m.capacity)-c), index, t))
		}
		return a, ok
	}
	b := old.backlog(state, t)
	a.Remaining = int64(satmath.Sub(uint64(m.capacity), old.byEmissionNum.Ceil(b)))
	a.ResetAfter = old.nanoseconds(b)
	switch {
	case waits:
		a.RetryAfter = old.nanoseconds(b.Sub(uint128.Mul(uint64(m.capacity)-c, old.emissionNum)))
	case ok && c > 0 && m.algorithm == LeakyQueue:
		a.Delay = m.nanoseconds(m.converted(b, old))
	}
	return a, ok
}

// holds reports whether c units more than a state of other numbers has in use are
// within the capacity.
func (m *Meter) holds(state []uint64, old *Meter, t, c uint64) bool {
	room := uint64(m.capacity) - c
	if m.algorithm == TokenBucketInterval {
		missing, _ := old.missing(state, t)
		return missing <= room
	}
	return !uint128.Mul(room, old.emissionNum).Less(old.backlog(state, t))
}

// converted returns the backlog of as many units as another is of other numbers,
// which are no more than the capacity, rounded up.
func (m *Meter) converted(b uint128.Int, old *Meter) uint128.Int {
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

// Longest returns the time after which a charge counts for nothing, whatever
// was charged before it: the greatest debt's drain, or what windows and parts
// remember.
func (m *Meter) Longest() time.Duration {
	const day = 24 * time.Hour
	switch {
	case m.isBucket():
		return m.nanoseconds(m.maxBacklog)
	case m.algorithm == TokenBucketInterval:
		lumps := uint128.From(m.deepest).Ceil(m.count)
		return satmath.Duration(uint128.Mul(satmath.Add(lumps, 1), m.period).Floor(1))
	case m.calendar != nil && m.spec.Calendar == Day:
		return 2 * day // no day of a zone is as long
	case m.calendar != nil:
		return m.spec.Calendar.nominal() + 3*day
	case m.algorithm == SlidingLog || m.algorithm == FixedWindow:
		return satmath.Duration(m.period)
	}
	return satmath.Duration(satmath.Add(m.period, m.period))
}
