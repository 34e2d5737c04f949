package redisstore_test

import (
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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
