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
	narrow    bool   // a bucket whose state is one word
	relaxed   bool   // sliding_counter
	small     bool   // sliding_buckets: counts of 32 bits
	capacity  int64  // the most that could ever pass at one instant
	deepest   uint64 // buckets and queue: the most units in use, the capacity and the greatest debt

	// Bucket and queue: the emission interval of one unit is
	// emissionNum/emissionDen nanoseconds, in lowest
	// terms; state and sums are kept in 1/emissionDen ns.
	emissionNum, emissionDen     uint64
	burstSpan, maxBacklog        uint128.Int     // capacity·emissionNum, deepest·emissionNum
	byEmissionNum, byEmissionDen uint128.Divisor // by emissionNum and by emissionDen

	// What counts in windows.
	count, period uint64
	byPeriods     uint128.Divisor
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
		relaxed:   spec.Relaxed,
		capacity:  spec.Capacity(),
		deepest:   uint64(spec.Capacity()) + uint64(spec.GreatestDebt()),
		count:     uint64(spec.Count),
		period:    uint64(spec.Period),
		small:     spec.Count < 1<<31,
	}
	if spec.Calendar != NoCalendar {
		zone, err := LoadZone(spec.Zone)
		if err != nil {
			return nil, err
		}
		m.calendar = &calendar{zone: zone, unit: spec.Calendar}
	}
	if m.calendar == nil {
		m.byPeriods = uint128.NewDivisor(m.period)
	}
	if m.algorithm == SlidingSubWindows {
		m.subWindows = min(uint64(spec.Parts()), m.period)
		m.bySubWindows, m.byRing = uint128.NewDivisor(m.period/m.subWindows), uint128.NewDivisor(m.subWindows+1)
	}
	if m.isBucket() {
		g := gcd(m.count, m.period)
		m.emissionNum, m.emissionDen = m.period/g, m.count/g
		m.byEmissionNum, m.byEmissionDen = uint128.NewDivisor(m.emissionNum), uint128.NewDivisor(m.emissionDen)
		m.burstSpan = uint128.Mul(uint64(m.capacity), m.emissionNum)
		m.maxBacklog = uint128.Mul(m.deepest, m.emissionNum)
		m.narrow = m.emissionDen == 1 && m.maxBacklog.Hi == 0 && m.maxBacklog.Lo <= 1<<61
	}
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
func (m *Meter) Aligned() bool { return m.algorithm.aligned() }

func (m *Meter) isBucket() bool { return m.algorithm == GCRA || m.algorithm == LeakyQueue }

// Words returns how many words a state has, at the least. Only a [SlidingLog]
// may need more: see [Meter.Room].
func (m *Meter) Words() int {
	switch m.algorithm {
	case GCRA, LeakyQueue:
		if m.narrow {
			return 1
		}
		return 2
	case TokenBucketInterval, FixedWindow:
		return 2
	case SlidingCounter:
		return 3
	case SlidingSubWindows:
		return m.partWords()
	default:
		return logWords
	}
}

// Room returns how many words a state needs for a charge of cost to be
// recorded exactly. With fewer, a log merges its newest entries: they then
// count longer than they should, never shorter.
func (m *Meter) Room(state []uint64, now, cost int64) int {
	if m.algorithm != SlidingLog {
		return m.Words()
	}
	return m.logRoom(state, since(now), cost)
}

// Move copies a state into one with more room.
func (m *Meter) Move(to, from []uint64) {
	if m.algorithm == SlidingLog {
		moveLog(to, from)
		return
	}
	copy(to, from)
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
	if m.isBucket() {
		_, _, ok := m.wideCharge(state, since(now), cost)
		return ok
	}
	if m.algorithm == FixedWindow {
		return m.windowTake(state, since(now), cost)
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
		return m.narrowTake(state, since(now), cost)
	}
	if m.isBucket() {
		return m.wideTake(state, since(now), cost)
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
	switch m.algorithm {
	case GCRA, LeakyQueue:
		return m.bucketAdmits(state, t, c)
	case TokenBucketInterval:
		return m.intervalAdmits(state, t, c)
	case FixedWindow:
		return m.windowAdmits(state, t, c)
	case SlidingCounter:
		return m.counterAdmits(state, t, c)
	case SlidingSubWindows:
		return m.partsAdmit(state, t, c)
	default:
		return m.logAdmits(state, t, c)
	}
}

// Charge adds cost units, room or not: what is more than fits is debt. In a
// bucket a debt is at most [Spec.GreatestDebt]; elsewhere it ages out with the rest.
func (m *Meter) Charge(state []uint64, now, cost int64) {
	t, c := since(now), uint64(max(cost, 0))
	switch m.algorithm {
	case GCRA, LeakyQueue:
		m.bucketCharge(state, t, c)
	case TokenBucketInterval:
		m.intervalCharge(state, t, c)
	case FixedWindow:
		m.windowCharge(state, t, c)
	case SlidingCounter:
		m.counterCharge(state, t, c)
	case SlidingSubWindows:
		m.partsCharge(state, t, c)
	default:
		m.logCharge(nil, state, t, c)
	}
}

// Answer describes the state as it stands to a request of cost units: when
// allowed is false, RetryAfter is the least wait after which it passes.
func (m *Meter) Answer(state []uint64, now, cost int64, allowed bool) (a Answer) {
	t := since(now)
	switch m.algorithm {
	case GCRA, LeakyQueue:
		a.Remaining, a.ResetAfter = m.bucketLevel(state, t)
	case TokenBucketInterval:
		a.Remaining, a.ResetAfter = m.intervalLevel(state, t)
	case FixedWindow:
		a.Remaining, a.ResetAfter = m.windowLevel(state, t)
	case SlidingCounter:
		a.Remaining, a.ResetAfter = m.counterLevel(state, t)
	case SlidingSubWindows:
		a.Remaining, a.ResetAfter = m.partsLevel(state, t)
	default:
		a.Remaining, a.ResetAfter = m.logLevel(state, t)
	}
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
	t, c := since(now), uint64(cost)
	switch m.algorithm {
	case GCRA, LeakyQueue:
		return m.bucketWait(state, t, c)
	case TokenBucketInterval:
		return m.intervalWait(state, t, c)
	case FixedWindow:
		return m.windowWait(state, t)
	case SlidingCounter:
		return m.counterWait(state, t, c)
	case SlidingSubWindows:
		return m.partsWait(state, t, c)
	default:
		return m.logWait(state, t, c)
	}
}

// Delay returns how long a request that passes now waits before it starts: 0
// but for a [LeakyQueue].
func (m *Meter) Delay(state []uint64, now, cost int64) time.Duration {
	if m.algorithm != LeakyQueue || cost <= 0 {
		return 0
	}
	return m.nanoseconds(m.backlog(state, since(now)))
}

// Refund removes up to amount units from what still counts, newest first. It
// widens the envelope by what it returns.
func (m *Meter) Refund(state []uint64, now, amount int64) {
	if amount <= 0 {
		return
	}
	t, n := since(now), uint64(amount)
	switch m.algorithm {
	case GCRA, LeakyQueue:
		m.bucketLower(state, t, m.units(n))
	case TokenBucketInterval:
		m.intervalRefund(state, t, n)
	case FixedWindow:
		m.windowRefund(state, t, n)
	case SlidingCounter:
		m.counterRefund(state, t, n)
	case SlidingSubWindows:
		m.partsRefund(state, t, n)
	default:
		m.logRefund(state, t, n)
	}
}

// Idle reports whether the state equals that of an unseen key, so that a store may
// drop it without changing any answer.
func (m *Meter) Idle(state []uint64, now int64) bool {
	t := since(now)
	switch m.algorithm {
	case GCRA, LeakyQueue:
		return m.bucketIdle(state, t)
	case TokenBucketInterval:
		return m.intervalIdle(state, t)
	case FixedWindow:
		return m.windowIdle(state, t)
	case SlidingCounter:
		return m.counterIdle(state, t)
	case SlidingSubWindows:
		return m.partsIdle(state, t)
	default:
		return m.logIdle(state, t)
	}
}

// Check reports whether words that came from outside, a file say, are a state
// of this limit that the other methods can work on.
func (m *Meter) Check(state []uint64) bool {
	switch m.algorithm {
	case SlidingLog:
		return len(state) >= logWords && m.logSound(state)
	case SlidingSubWindows:
		return len(state) >= m.Words() && m.partsSound(state)
	}
	return len(state) >= m.Words()
}

// CountsDenied reports whether a denied request is charged too.
func (m *Meter) CountsDenied() bool { return m.spec.CountDenied }

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
