package redisstore_test

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// at returns options of each store at one URL.
func at(url string) func(store int) redisstore.Options {
	return func(int) redisstore.Options { return redisstore.Options{URL: url} }
}

// slowly runs what servers may suffer as a test that -short leaves out. Others run beside
// it: it waits more than it works.
func slowly(t *testing.T, suffer func(*testing.T)) {
	need.Time(t)
	t.Parallel()
	suffer(t)
}

// openPlain returns a store with a prefix of its own and the default timeout, which ends
// with the test.
func openPlain(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = fmt.Sprint("fault", prefixes.Add(1))
	}
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// What servers may suffer, and what is promised meanwhile.
func TestUnserved(t *testing.T)      { slowly(t, Unserved) }
func TestFullNode(t *testing.T)      { slowly(t, FullNode) }
func TestKilledBetween(t *testing.T) { slowly(t, KilledBetween) }
func TestModeFaults(t *testing.T)    { slowly(t, Modes) }

// TestReplies goes through what servers answer instead of deciding.
func TestReplies(t *testing.T) {
	if testing.Short() && redistest.Program() == "redis-server" { // TestValkey runs it in short
		t.Skip("slow")
	}
	t.Parallel() // it waits more than it works
	Replies(t)
}

// TestCrossSlot is for a program whose client does not know that it is a cluster.
func TestCrossSlot(t *testing.T) {
	t.Parallel()
	CrossSlot(t, redisstore.NewDriver(client(t, redistest.StartCluster(t, 3, 0).Nodes[0].Addr)))
}

// ModesClock steps the clock of a server back and forth under stores in modes
// Lease and Async. Steps back add nothing to what passes, in real time, nor do
// they lock a key out for longer than two drains. A step forth is time that
// passes, at most a limit's worth, and ends leases for the server while nodes
// have them in hand. Once the clock is where it was, all that was let through is
// counted, to the unit.
func ModesClock(t *testing.T) {
	const drain = modeBurst * time.Second / modeRate
	const leased = modeBurst / 10 // S
	server, clock := redistest.StartClock(t)
	patient := func(int) redisstore.Options { // no call has a reason to fail, but a machine that is busy
		return redisstore.Options{URL: server.URL(), Timeout: patience}
	}
	f := newFleet(t, patient, "a", "b")
	f.during(func() {})
	f.exact("before")
	for _, step := range []struct {
		name        string
		by          time.Duration
		idle, lasts time.Duration
		more        int64
	}{
		{"a second back", -time.Second, drain, 1700 * time.Millisecond, 0},
		{"a day back", -24 * time.Hour, drain, drain + time.Second, 0},
		{"a day forth", 24 * time.Hour, 0, 2200 * time.Millisecond, modeBurst + leased},
		{"a second forth", time.Second, 0, 1500 * time.Millisecond, modeRate + leased},
	} {
		time.Sleep(step.idle) // buckets are full again
		f.during(func() {
			time.Sleep(300 * time.Millisecond)
			if step.idle > 0 { // a step back may lock a key out for the rest, on a busy machine before it had much
				eventually(f, step.name+": full buckets let little through", func() bool { return f.passed() >= modeRate })
			}
			eventually(f, step.name+": nothing is in hand", func() bool { return f.held() > 0 })
			clock.Step(t, step.by)
			time.Sleep(step.lasts)
			f.decided(step.name)
		})
		f.envelopes(step.name, step.more, modeRate)
	}
	f.exact("the clock where it was")
	if n := f.failed.Load(); n != 0 {
		f.Errorf("%d calls failed: a clock that steps is no reason", n)
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

// ModesPartition takes one of the stores in modes Lease and Async its way to the
// server, which neither answers nor resets: it spends what it has in hand or may
// leave unsent, and then lets nothing more through; the others go on. All
// together stay within the bounds of their modes, and when the way is back, what
// was let through is counted to the unit.
func ModesPartition(t *testing.T) {
	server := redistest.Start(t)
	way := redistest.NewProxy(t, server.Addr)
	first := func(store int) redisstore.Options {
		if store == 0 {
			return redisstore.Options{URL: way.URL()}
		}
		return redisstore.Options{URL: server.URL()}
	}
	f := newFleet(t, first, "a", "b")
	time.Sleep(modeBurst * time.Second / modeRate) // buckets are full again
	f.during(func() {
		passes := func(limit int, key string) bool {
			d, _ := f.limits[limit][0].Decide(ctx, meter.OpTake, key, 1)
			return d.Allowed
		}
		eventually(f, "the node has nothing in hand when it is cut off", func() bool {
			for range 100 { // of a key that is its own, as fast as it can
				passes(0, "c")
			}
			way.Set(redistest.Fault{Stall: true})
			if passes(0, "c") {
				return true
			}
			way.Set(redistest.Fault{})
			time.Sleep(200 * time.Millisecond)
			return false
		})
		for begun := time.Now(); time.Since(begun) < 2200*time.Millisecond; time.Sleep(100 * time.Millisecond) {
			passes(0, "c")
		}
		for range modeUnsent { // where slow callers have not spent it
			_ = f.ask(0, "a")
		}
		for range 200 { // a lease lasts 1.75 s
			for i, key := range []string{"c", "a", "a"} {
				if passes(i, key) {
					f.Fatalf("mode %d: long after it was cut off, the node lets through what nobody knows of", i)
				}
			}
		}
		way.Set(redistest.Fault{})
		f.decided("afterwards")
	})
	f.envelopes("partition", 0, 2*modeRate)
	f.exact("partition")
	f.during(func() {}) // and all is as it was
	f.envelopes("afterwards", 0, 20)
	f.exact("afterwards")
}
