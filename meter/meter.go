package meter

import (
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// A Meter is a validated limit with its constants computed. It is the arithmetic that every store
// shares, and it is pure: time is an argument, and state is a slice of words that the caller keeps
// and locks.
//
// A state whose words are all zero is that of an unseen key. Times are nanoseconds since the Unix
// epoch; times before the epoch count as the epoch. Every method is total: no int64 makes it wrap
// or panic, as long as the state has at least [Meter.Words] words. A Meter may be used from many
// goroutines at once; a state may not.
//
// A state that lies further ahead than charges can explain comes from a clock fault. It is cut to
// what charges could explain, so that a clock that jumps and comes back locks a key out for no
// longer than the limit itself could: the drain of a bucket and of its greatest debt, or two
// windows and a fraction of a third.
type Meter struct {
	spec      Spec
	algorithm Algorithm
	// Buckets and queues are decided without a call through their arithmetic. Their states have one
	// word (narrow) or two (wide).
	narrow, wide bool
	queues       bool
	small        bool   // sliding_buckets: counts of 32 bits
	capacity     int64  // the most that can pass at one instant
	deepest      uint64 // buckets and queue: the most units in use, the capacity and the greatest debt

	// For a bucket or queue, one unit takes emissionNum/emissionDen nanoseconds, in lowest terms.
	// States and sums are in units of 1/emissionDen ns.
	emissionNum, emissionDen     uint64
	burstSpan, maxBacklog        uint128.Int     // capacity·emissionNum, deepest·emissionNum
	byEmissionNum, byEmissionDen uint128.Divisor // divide by emissionNum and by emissionDen

	// The meter as its algorithm sees it, and as each optional interface; nil where the algorithm
	// does not implement one.
	as      arithmetic
	short   shortcut
	grow    grower
	rewrite rewriter
	drain   drainer

	// For algorithms that count in windows.
	count, period uint64
	byPeriods     uint128.Divisor // divides by the period; not for a calendar
	subWindows    uint64          // sliding_buckets: the number of parts in a window
	bySubWindows  uint128.Divisor // nanoseconds to parts, where parts are whole nanoseconds
	byRing        uint128.Divisor // subWindows + 1, the length of the ring
	calendar      *calendar
}

// New returns the meter of a limit. The error is that of [Spec.Validate].
func New(spec Spec) (*Meter, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	m := &Meter{
		spec:      spec,
		algorithm: spec.Algorithm,
		queues:    spec.Algorithm.Queues(),
		capacity:  spec.Capacity(),
		deepest:   uint64(spec.Capacity()) + uint64(spec.GreatestDebt()),
		count:     uint64(spec.Count),
		period:    uint64(spec.Period),
	}
	if spec.Calendar == NoCalendar {
		m.byPeriods = uint128.NewDivisor(m.period)
	} else {
		zone, err := LoadZone(spec.Zone)
		if err != nil {
			return nil, err
		}
		m.calendar = &calendar{zone: zone, unit: spec.Calendar}
	}
	m.as = spec.Algorithm.kind().of(m)
	m.short, _ = m.as.(shortcut)
	m.grow, _ = m.as.(grower)
	m.rewrite, _ = m.as.(rewriter)
	m.drain, _ = m.as.(drainer)
	return m, nil
}

// Spec returns the parameters of the limit.
func (m *Meter) Spec() Spec { return m.spec }

// Algorithm returns the algorithm of the limit.
func (m *Meter) Algorithm() Algorithm { return m.algorithm }

// Capacity returns the most that could ever pass at one instant, in units.
func (m *Meter) Capacity() int64 { return m.capacity }

// Aligned reports whether the limit goes by the time of day: its windows begin at multiples of the
// period, or at the edges of a calendar.
func (m *Meter) Aligned() bool { return m.algorithm.kind().aligned && !m.spec.FromFirst }

// Words returns the least number of words in a state. The state of a log may need more: see
// [Meter.Room].
func (m *Meter) Words() int { return m.as.words() }

// Room returns how many words a state needs for a charge of cost to be
// recorded exactly. With fewer, a log merges its newest entries: they then
// count longer than they should, never shorter.
func (m *Meter) Room(state []uint64, now, cost int64) int {
	if m.grow == nil {
		return m.as.words()
	}
	return m.grow.room(state, since(now), cost)
}

// Move copies a state into a larger slice.
func (m *Meter) Move(to, from []uint64) {
	if m.grow == nil {
		copy(to, from)
		return
	}
	m.grow.move(to, from)
}

// since returns a time as an unsigned word: times before the epoch count as the epoch.
func since(now int64) uint64 { return uint64(max(now, 0)) }

// Allow is [Meter.Take] without the answer.
func (m *Meter) Allow(state []uint64, now, cost int64) bool {
	if m.narrow {
		tat, ok := m.TakeWord(state[0], now, cost)
		state[0] = tat
		return ok
	}
	if m.wide {
		_, _, ok := (*bucket)(m).wideCharge(state, since(now), cost)
		return ok
	}
	if m.short != nil {
		return m.short.allow(state, since(now), cost)
	}
	ok := m.Admits(state, now, cost)
	if ok || m.spec.CountDenied {
		m.Charge(state, now, cost)
	}
	return ok
}

// Take decides a request of cost units, charges it if it passes, and reports whether it passed. A
// denied request changes nothing, unless the limit counts denied requests. A cost of 0 or less
// passes and changes nothing.
func (m *Meter) Take(state []uint64, now, cost int64) (a Answer, ok bool) {
	if m.narrow {
		state[0], a, ok = m.DecideWord(state[0], now, cost)
		return a, ok
	}
	if m.wide {
		return (*bucket)(m).wideTake(state, since(now), cost)
	}
	if m.short != nil {
		return m.short.take(state, since(now), cost)
	}
	ok = m.Admits(state, now, cost)
	if ok || m.spec.CountDenied {
		m.Charge(state, now, cost)
	}
	return m.Answer(state, now, cost, ok), ok
}

// Admits reports whether a request of cost units would pass. It forgets from
// the state what no longer counts, and changes nothing else.
func (m *Meter) Admits(state []uint64, now, cost int64) bool {
	if cost <= 0 {
		return true
	}
	if cost > m.capacity {
		return false
	}
	t, c := since(now), uint64(cost)
	if m.narrow {
		state[0] = m.mend(state[0], t)
		return satmath.Sub(state[0], t)+c*m.emissionNum <= m.burstSpan.Lo
	}
	return m.as.admits(state, t, c)
}

// Charge adds cost units, even where there is no room: the excess is debt. In a bucket a debt is at
// most [Spec.GreatestDebt]; in other algorithms it ages out like other charges.
func (m *Meter) Charge(state []uint64, now, cost int64) {
	m.as.charge(state, since(now), uint64(max(cost, 0)))
}

// Answer describes the state to a request of cost units. When allowed is false, RetryAfter is the
// least wait after which the request passes.
func (m *Meter) Answer(state []uint64, now, cost int64, allowed bool) (a Answer) {
	a.Remaining, a.ResetAfter = m.as.level(state, since(now))
	if !allowed {
		a.RetryAfter = m.Wait(state, now, cost)
	}
	return a
}

// Wait returns the least wait after which cost units pass if nothing else
// arrives: 0 if they pass now, [Never] if they never can.
func (m *Meter) Wait(state []uint64, now, cost int64) time.Duration {
	if cost > m.capacity {
		return Never
	}
	if m.Admits(state, now, cost) {
		return 0
	}
	return m.as.wait(state, since(now), uint64(cost))
}

// Refund removes up to amount units that still count, newest first. It widens the envelope by the
// units that it returns.
func (m *Meter) Refund(state []uint64, now, amount int64) {
	if amount > 0 {
		m.as.refund(state, since(now), uint64(amount))
	}
}

// Idle reports whether the state equals that of an unseen key, so that a store may
// drop it without changing any answer.
func (m *Meter) Idle(state []uint64, now int64) bool { return m.as.idle(state, since(now)) }

// Check reports whether words from outside, such as a file, are a state of this limit on which the
// other methods work.
func (m *Meter) Check(state []uint64) bool { return len(state) >= m.as.words() && m.as.sound(state) }

// CountsDenied reports whether a denied request is charged like one that passed.
func (m *Meter) CountsDenied() bool { return m.spec.CountDenied }
