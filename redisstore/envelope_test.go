package redisstore_test

import (
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
)

// An envelope holds admissions, in the order of their times, to at most B + d/T
// in any stretch d: a bucket that leaks a unit each T, and that no admission may
// find fuller than B, is the same said in one pass.
type envelope struct {
	burst, count, period int64 // T is period/count ns
	level                int64 // in 1/count ns
	last                 int64
	highest              int64 // units, rounded up
}

func envelopeOf(l stint.Limit) *envelope {
	return &envelope{burst: l.Burst(), count: l.Count(), period: int64(l.Period())}
}

func (e *envelope) admit(t testing.TB, at, cost int64) {
	t.Helper()
	if e.last == 0 {
		e.last = at
	}
	e.level = max(e.level-(at-e.last)*e.count, 0) + cost*e.period
	e.last = at
	e.highest = max(e.highest, (e.level+e.period-1)/e.period)
	if e.highest > e.burst {
		t.Fatalf("%d units in a stretch that ends at %d and admits %d", e.highest, at, e.burst)
	}
}

// spend takes all that there is of a key by the limits, in turns, and wants nearly the whole of
// a burst of 2000 in a stretch: else the worst case was not reached.
func (e *envelope) spend(t testing.TB, clock *virtual, limits ...stint.Bound) {
	t.Helper()
	for range 2 {
		for _, limit := range limits {
			for take(t, limit, "k", 1).Allowed {
				e.admit(t, clock.now(), 1)
			}
		}
	}
	if e.highest < 1900 {
		t.Errorf("%d of 2000: the worst case was not reached", e.highest)
	}
}

// Load has callers do something again and again, each with a pause before it, until stop
// is called or the test ends.
func Load(t testing.TB, callers int, pause time.Duration, do func(caller int)) (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(pause): // what a caller does besides
					do(i)
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(done); all.Wait() })
	t.Cleanup(stop) // also of a test that fails
	return stop
}

// A Longest is the longest of some durations, which many goroutines may note.
type Longest struct{ ns atomic.Int64 }

// Note counts a duration in.
func (l *Longest) Note(d time.Duration) {
	for most := l.ns.Load(); int64(d) > most && !l.ns.CompareAndSwap(most, int64(d)); most = l.ns.Load() {
	}
}

// Load returns the longest so far.
func (l *Longest) Load() time.Duration { return time.Duration(l.ns.Load()) }

// Spans are what calls have let through, by the moments in which they began and ended.
// Many goroutines may note.
type Spans struct {
	moment time.Duration

	mu   sync.Mutex
	took map[[2]int64]int64
}

// NewSpans returns Spans with moments of a length.
func NewSpans(moment time.Duration) *Spans {
	return &Spans{moment: moment, took: make(map[[2]int64]int64)}
}

// Now is which moment it is.
func (s *Spans) Now() int64 { return time.Now().UnixNano() / int64(s.moment) }

// Note counts units in.
func (s *Spans) Note(from, to, units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took[[2]int64{from, to}] += units
}

// Sum is all that was let through.
func (s *Spans) Sum() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range maps.Values(s.took) {
		sum += n
	}
	return sum
}

// Judge holds what calls have let through that lie wholly in a stretch, for every stretch,
// to the most that may pass in it. It returns the greatest part of that.
func (s *Spans) Judge(t testing.TB, what string, most func(first, last int64, stretch time.Duration) int64) (highest float64) {
	t.Helper()
	for first := range s.took {
		within, last := make(map[int64]int64), first[0] // by the moment in which calls ended
		for at, n := range s.took {
			if at[0] >= first[0] {
				within[at[1]] += n
				last = max(last, at[1])
			}
		}
		sum := int64(0)
		for m := first[0]; m <= last; m++ {
			sum += within[m]
			stretch := time.Duration(m+1-first[0]) * s.moment
			bound := most(first[0], m, stretch)
			if highest = max(highest, float64(sum)/float64(bound)); sum > bound {
				t.Fatalf("%s: %d passed in %v, at most %d may", what, sum, stretch, bound)
			}
		}
	}
	return highest
}
