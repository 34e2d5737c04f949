package meter

import (
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// A Meter is a limit made ready to decide: validated, with its constants
// computed. It is the arithmetic that every store shares, and it is pure: time
// is an argument, state is a slice of words that the caller keeps and locks.
//
// A state whose words are all zero is that of an unseen key. Times are
// nanoseconds since the Unix epoch; before the epoch counts as the epoch.
// Every method is total: no int64 makes it wrap or panic, as long as the state
// has at least [Meter.Words] words. A Meter may be used from many goroutines
// at once; a state may not.
//
// State that lies further ahead than time can explain is a clock fault. It is
// taken to be exactly as far ahead as could be explained, so that a clock that
// jumps and comes back locks a key out for no longer than its limit can: a bucket's
// drain and that of its greatest debt, or two windows and part of a third.
type Meter struct {
	spec      Spec
	algorithm Algorithm
	// Buckets and queues are decided without a call through their arithmetic: of a state
	// of one word, narrow, and of two.
	narrow, wide bool
	queues       bool
	small        bool   // sliding_buckets: counts of 32 bits
	capacity     int64  // the most that could ever pass at one instant
	deepest      uint64 // buckets and queue: the most units in use, the capacity and the greatest debt

	// Bucket and queue: the emission interval of one unit is
	// emissionNum/emissionDen nanoseconds, in lowest
	// terms; state and sums are kept in 1/emissionDen ns.
	emissionNum, emissionDen     uint64
	burstSpan, maxBacklog        uint128.Int     // capacity·emissionNum, deepest·emissionNum
	byEmissionNum, byEmissionDen uint128.Divisor // by emissionNum and by emissionDen

	// This meter as its algorithm has it, and what that is beside: nil if it is not.
	as      arithmetic
	short   shortcut
	grow    grower
	rewrite rewriter
	drain   drainer

	// What counts in windows.
	count, period uint64
	byPeriods     uint128.Divisor // but for a calendar
	subWindows    uint64          // sliding_buckets: the parts of a window
	bySubWindows  uint128.Divisor // nanoseconds to parts, where a part is whole
	byRing        uint128.Divisor // subWindows + 1, the length of the ring
	calendar      *calendar
}

// New returns the arithmetic of a limit, or what [Spec.Validate] says.
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

// Aligned reports whether the limit goes by the time of day: its windows begin
// at multiples of the period, or with a calendar's days or months.
func (m *Meter) Aligned() bool { return m.algorithm.kind().aligned }

// Words returns how many words a state has, at the least. One that grows may need
// more: see [Meter.Room].
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

// Move copies a state into one with more room.
func (m *Meter) Move(to, from []uint64) {
	if m.grow == nil {
		copy(to, from)
		return
	}
	m.grow.move(to, from)
}

// since returns the time as an unsigned word.
func since(now int64) uint64 { return uint64(max(now, 0)) }

// Allow is [Meter.Take] with the short answer.
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

// Take decides one request of cost units and charges it if it passes. A denial
// changes nothing, unless the limit counts what it denies. A cost of 0 or less
// passes and changes nothing. It reports whether the request passed.
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

// Charge adds cost units, room or not: what is more than fits is debt. In a
// bucket a debt is at most [Spec.GreatestDebt]; elsewhere it ages out with the rest.
func (m *Meter) Charge(state []uint64, now, cost int64) {
	m.as.charge(state, since(now), uint64(max(cost, 0)))
}

// Answer describes the state as it stands to a request of cost units: when
// allowed is false, RetryAfter is the least wait after which it passes.
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

// Refund removes up to amount units from what still counts, newest first. It
// widens the envelope by what it returns.
func (m *Meter) Refund(state []uint64, now, amount int64) {
	if amount > 0 {
		m.as.refund(state, since(now), uint64(amount))
	}
}

// Idle reports whether the state equals that of an unseen key, so that a store may
// drop it without changing any answer.
func (m *Meter) Idle(state []uint64, now int64) bool { return m.as.idle(state, since(now)) }

// Check reports whether words that came from outside, a file say, are a state
// of this limit that the other methods can work on.
func (m *Meter) Check(state []uint64) bool { return len(state) >= m.as.words() && m.as.sound(state) }

// CountsDenied reports whether a denied request is charged too.
func (m *Meter) CountsDenied() bool { return m.spec.CountDenied }
