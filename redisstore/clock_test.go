package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A stepper is a key in Redis and its twin, the arithmetic of floor 0 on a state
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

// TestClockSteps holds Redis to floor 0 while the clock steps back by any
// stretch, up to a year, right after something was charged. (A state is what
// was charged; that floor 0 also remembers the time of a look that charged
// nothing shows when the clock steps back after that, and mints nothing.)
func TestClockSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	server := redistest.Start(t)
	for _, text := range texts {
		l := parse(t, text)
		if l.Algorithm() == meter.SlidingLog && l.Period()%time.Microsecond != 0 || l.Period() > 90*24*time.Hour || l.Ban() > 0 {
			continue // goes by whole microseconds; a year is nothing; bans are no arithmetic of a meter
		}
		m, err := l.Meter()
		if err != nil {
			t.Fatal(err)
		}
		s := &stepper{TB: t, meter: m, state: make([]uint64, max(m.Words(), 64)), now: 1_750_000_000_000_000_000, rnd: rand.New(rand.NewPCG(6, 28))}
		store := open(t, server.URL(), redisstore.Options{Now: func() int64 { return s.now }})
		s.bound = bind(t, store, text)
		p := &pair{TB: t, rnd: s.rnd}
		charged := false
		for range 400 {
			p.now = s.now
			s.now += p.gap(l)
			if charged && s.rnd.IntN(4) == 0 {
				back := s.rnd.Int64N([]int64{int64(l.Period()), 3 * int64(l.Period()), int64(365 * 24 * time.Hour)}[s.rnd.IntN(3)])
				s.now -= back / microsecond * microsecond
			}
			charged = s.take(meter.Op(s.rnd.IntN(2)), p.cost(l))
		}
		store.Close()
	}
}
