package redisstore_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A stepper is a key in Redis and its twin, the arithmetic of package meter on a state
// of its own, on a clock that steps back and forth.
type stepper struct {
	testing.TB
	meter *meter.Meter
	state []uint64
	bound stint.Bound
	now   int64
	rnd   *rand.Rand
}

// take asks both, and reports whether something was charged.
func (s *stepper) take(op meter.Op, cost int64) bool {
	if room := s.meter.Room(s.state, s.now, cost); room > len(s.state) {
		more := make([]uint64, 2*room)
		s.meter.Move(more, s.state)
		s.state = more
	}
	var want stint.Decision
	if op == meter.OpPeek {
		ok := s.meter.Admits(s.state, s.now, cost)
		want.Set(s.meter, s.meter.Answer(s.state, s.now, cost, ok), ok, 0)
		if ok {
			want.Delay = s.meter.Delay(s.state, s.now, cost)
		}
	} else {
		a, ok := s.meter.Take(s.state, s.now, cost)
		want.Set(s.meter, a, ok, cost)
	}
	got, err := s.bound.Decide(ctx, op, "a", cost)
	if err != nil || got != micros(want) {
		s.Fatalf("%v: op %d of %d at %d:\n got %+v, %v\nwant %+v", s.bound.Limits(), op, cost, s.now, got, err, micros(want))
	}
	return got.Taken > 0
}
