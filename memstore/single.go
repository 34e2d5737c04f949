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
	now := s.clock.now()
	for {
		old := s.word.Load()
		next, ok := s.meter.TakeWord(old, now, cost)
		if next == old || s.word.CompareAndSwap(old, next) {
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
	now := s.clock.now()
	if !s.lockFree {
		s.locked(&d, now, cost)
		return d, nil
	}
	for {
		old := s.word.Load()
		state := [1]uint64{old}
		s.meter.TakeInto(&d, state[:], now, cost)
		if state[0] == old || s.word.CompareAndSwap(old, state[0]) {
			return d, nil
		}
	}
}

func (s *Single) allowLocked(cost int64) bool {
	now := s.clock.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.ready(now, cost)
	return s.meter.Allow(s.state, now, cost)
}

func (s *Single) locked(d *stint.Decision, now, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.ready(now, cost)
	s.meter.TakeInto(d, s.state, now, cost)
}

// ready makes room for a charge and returns the time to decide at.
func (s *Single) ready(now, cost int64) int64 {
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
