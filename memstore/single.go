package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
)

// A Single is one limit without keys, for a whole process: the shortest way
// from a limit to an answer.
//
// Price: one clock read and one compare-and-swap, without a lock, for gcra and
// leaky_queue where the period divides evenly by the count; other limits take
// a mutex. Nothing is allocated, but for a growing log. A Single may be used
// from many goroutines at once.
type Single struct {
	meter    *stint.Meter
	clock    clock
	lockFree bool
	word     atomic.Uint64 // the state, if lockFree
	drain    uint64        // from full to empty, in ns, if lockFree

	mu    sync.Mutex
	state []uint64 // else
}

// NewSingle returns a limiter of that limit. The error says why it cannot be
// held.
func NewSingle(limit stint.Limit) (*Single, error) {
	m, err := stint.NewMeter(limit)
	if err != nil {
		return nil, err
	}
	s := &Single{meter: m, lockFree: m.Words() == 1, state: make([]uint64, m.Words())}
	if s.lockFree { // one unit takes a whole number of nanoseconds
		s.drain = uint64(limit.Capacity()) * uint64(int64(limit.Period())/limit.Count())
	}
	s.clock.init(nil)
	return s, nil
}

// Allow takes one unit and reports whether it passed.
func (s *Single) Allow() bool { return s.AllowN(1) }

// AllowN takes cost units, all or none, and reports whether they passed. A cost
// below zero never passes.
func (s *Single) AllowN(cost int64) bool {
	if !s.lockFree || cost < 0 {
		return cost >= 0 && s.allowLocked(cost)
	}
	for {
		old, now, sure := s.look()
		next, ok := s.meter.TakeWord(old, now, cost)
		if next != old && s.word.CompareAndSwap(old, next) || next == old && (ok || sure) {
			return ok
		}
	}
}

// Take takes cost units, all or none, and gives the whole answer. The error is
// [stint.ErrCost] for a cost below zero.
func (s *Single) Take(cost int64) (d stint.Decision, err error) {
	if cost < 0 {
		return d, stint.ErrCost
	}
	if !s.lockFree {
		s.takeLocked(&d, cost)
		return d, nil
	}
	for {
		old, now, sure := s.look()
		state := [1]uint64{old}
		s.meter.TakeInto(&d, state[:], now, cost)
		if state[0] != old && s.word.CompareAndSwap(old, state[0]) || state[0] == old && (d.Allowed || sure) {
			return d, nil
		}
	}
}

// look returns the state and a time to decide at, which was read before it, so
// that little time is left for others to change the state meanwhile.
//
// If sure, it was the state at that time. Else others have taken since the
// clock was read: what passes at that time passes now, since a bucket only
// drains meanwhile, but a denial may be one for what they took, and has to be
// made again. Where the state lies further ahead than a full bucket, the caller
// stood still for so long that the time is of no use.
func (s *Single) look() (state uint64, now int64, sure bool) {
	for {
		before := s.word.Load()
		now = s.clock.now()
		state = s.word.Load()
		if state == before {
			return state, now, true
		}
		if now >= 0 && state <= uint64(now)+s.drain {
			return state, now, false
		}
	}
}

func (s *Single) allowLocked(cost int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.ready(cost)
	return s.meter.Allow(s.state, now, cost)
}

func (s *Single) takeLocked(d *stint.Decision, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.ready(cost)
	s.meter.TakeInto(d, s.state, now, cost)
}

// ready makes room for a charge and returns the time to decide at.
func (s *Single) ready(cost int64) int64 {
	now := s.clock.now()
	if s.meter.Aligned() {
		now = s.clock.aligned(now)
	}
	if need := s.meter.Room(s.state, now, cost); need > len(s.state) {
		state := make([]uint64, roomy(need))
		s.meter.Move(state, s.state)
		s.state = state
	}
	return now
}
