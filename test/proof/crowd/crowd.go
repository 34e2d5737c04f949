// Package crowd asks one entry point for one key from many goroutines at once, and
// judges what passed. Entry points are those of the library, of its adapters and of
// the program; the oracle is told what each call saw, and nothing of the engine.
package crowd

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/test/proof/model"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// A Take asks one entry point for one unit of a key, which is an address, and says
// whether it passed. An error is neither. It is called from many goroutines at once.
type Take func(key string) (ok bool, err error)

// shared is the key that all goroutines ask for.
const shared = "192.0.2.7"

// slop is how far the clock of a store may be off that of its callers: it may be
// another, and in whole microseconds.
const slop = int64(200 * time.Microsecond)

// Run asks from that many goroutines for that long, each at least once, and holds
// what passed to the limit's envelope. The first error ends the test.
func Run(t testing.TB, limit model.Spec, goroutines int, length time.Duration, ask Take) {
	t.Helper()
	c := gathering{start: time.Now()}
	var all sync.WaitGroup
	end := c.now() + int64(length)
	for i := range goroutines {
		all.Go(func() { c.member(uint64(i), end, ask) })
	}
	all.Wait()
	if c.failed != nil {
		t.Fatal(c.failed)
	}
	judge(t, limit, c.passed, moments(c.asked, limit.Period/limit.Count))
}

// A gathering is what the members of a crowd saw.
type gathering struct {
	start  time.Time
	mu     sync.Mutex
	passed []oracle.Event
	asked  []call
	failed error
}

// A call is when it began and ended, ns.
type call struct{ from, to int64 }

// moments returns how many calls can be found of which each begins at least apart after
// the end of the one before. A crowd that got little of the processor asked at few.
func moments(asked []call, apart int64) (n int64) {
	slices.SortFunc(asked, func(a, b call) int { return cmp.Compare(a.to, b.to) })
	last := int64(math.MinInt64 / 2)
	for _, c := range asked {
		if c.from >= last+apart {
			n, last = n+1, c.to
		}
	}
	return n
}

// now is the time of day, ns, carried on by the monotonic clock.
func (c *gathering) now() int64 { return c.start.UnixNano() + int64(time.Since(c.start)) }

// member asks until the end, and once, however late it begins.
func (c *gathering) member(seed uint64, end int64, ask Take) {
	rng := rand.New(rand.NewPCG(seed, 7))
	var own []oracle.Event
	var asked []call
	for from := c.now(); from < end || len(asked) == 0; from = c.now() {
		ok, err := ask(shared)
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.failed = err
			return
		}
		to := c.now()
		asked = append(asked, call{from, to})
		if ok {
			own = append(own, oracle.Event{T: from - slop, End: to + slop, Cost: 1, Allowed: true})
		}
		switch rng.IntN(8) {
		case 0:
			runtime.Gosched()
		case 1:
			time.Sleep(time.Duration(rng.Int64N(int64(time.Millisecond))))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed, c.asked = append(c.passed, own...), append(c.asked, asked...)
}

// judge holds what passed to the envelope, and so each choice of it: calls that took
// long say little about when. What passed must not be too little: a unit comes back
// between one moment and the next.
func judge(t testing.TB, limit model.Spec, passed []oracle.Event, moments int64) {
	t.Helper()
	for _, longest := range []time.Duration{time.Hour, 5 * time.Millisecond, time.Millisecond, 450 * time.Microsecond} {
		var some []oracle.Event
		for _, e := range passed {
			if e.End-e.T <= int64(longest) {
				some = append(some, e)
			}
		}
		if v := oracle.Check(limit, some, 0); len(v) > 0 {
			t.Errorf("calls of up to %v: %d violations in %d that passed, first: %v", longest, len(v), len(some), v[0])
		}
	}
	if least := max(moments/20, 1); int64(len(passed)) < least {
		t.Errorf("%d passed of calls at %d moments, at least %d should", len(passed), moments, least)
	}
}

// Rounds lets many ask for the same one unit of a key at once, key after key: one of
// them gets it, under a limit of one an hour. Calls that look first and charge
// afterwards give more. Where half of what passed is cancelled, several may have it
// in turn, but one keeps it.
func Rounds(t testing.TB, rounds int, ask Take) {
	t.Helper()
	const goroutines = 16
	total := int64(0)
	for round := range rounds {
		key := fmt.Sprintf("10.0.%d.%d", round/250, round%250+1)
		var passed atomic.Int64
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range goroutines {
			all.Go(func() {
				<-begin
				switch ok, err := ask(key); {
				case err != nil:
					t.Error(err)
				case ok:
					passed.Add(1)
				}
			})
		}
		close(begin)
		all.Wait()
		if passed.Load() > 1 {
			t.Fatalf("round %d: %d passed, where one may", round, passed.Load())
		}
		total += passed.Load()
	}
	if total < int64(rounds)/4 {
		t.Errorf("%d passed in %d rounds", total, rounds)
	}
}
