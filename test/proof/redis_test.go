package proof_test

import (
	"context"
	"flag"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/test/proof/model"
)

// TestDifferentialRedis is TestDifferential with the script in a real Redis as
// one more column: the same is done to the model, to the embedded store and to
// Redis, on a clock of whole microseconds. All say the same; Redis rounds waits
// up to whole microseconds.
func TestDifferentialRedis(t *testing.T) {
	differAll(t, "unix://"+startRedis(t))
}

// TestDifferentialRedisCluster is TestDifferentialRedis on three masters with a
// replica each, where the layers of a request may be on several nodes.
func TestDifferentialRedisCluster(t *testing.T) {
	differAll(t, redistest.StartCluster(t, 3, 1).URL())
}

// TestDifferentialRedisChanges changes limits all the while, to other numbers,
// kinds and periods and back: Redis says what the model does.
// Its seeds are fixed, so that it fails for a change alone; -rapid.seed and
// -rapid.checks look further, with -run 'Changes/0'.
func TestDifferentialRedisChanges(t *testing.T) {
	url := "unix://" + startRedis(t)
	saw := sightings{takes: make(map[string][2]int)}
	seed := flag.Lookup("rapid.seed").Value
	before := seed.String()
	defer func() { _ = seed.Set(before) }()
	for i := range scaled(3, 6, 12) {
		if before == "0" {
			_ = seed.Set(fmt.Sprint(i + 1))
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) { differ(t, url, &saw, true) })
	}
	saw.judge(t)
	if saw.changes == 0 {
		t.Error("no limit changed")
	}
}

func differAll(t *testing.T, url string) {
	saw := sightings{takes: make(map[string][2]int)}
	var all sync.WaitGroup
	for i := range scaled(6, 12, 12) { // at once: they wait for Redis more than they compute
		all.Go(func() {
			t.Run(fmt.Sprint(i), func(t *testing.T) { differ(t, url, &saw, false) })
		})
	}
	all.Wait()
	saw.judge(t)
}

func differ(t *testing.T, url string, saw *sightings, changes bool) {
	var d *differential // of the check that runs: they run one at a time
	store := openRedis(t, url, func() int64 { return d.now })
	defer store.Close()
	checks := 0
	for range scaled(1, 2, 20) {
		rapid.Check(t, func(t *rapid.T) {
			checks++
			d = newDifferential(t, 1000)
			d.redis = &redisColumn{store: store, check: checks, saw: saw}
			d.stores = append(d.stores, &column{name: "redis", store: store, quantum: 1000})
			if changes { // memory rounds what is in use to another quantum
				d.stores, d.redis.changes = d.stores[1:], true
				d.model.Quantum = 1000
			}
			d.run(200)
		})
	}
}

// openRedis opens a store on a virtual clock, with keys that are the test's own.
func openRedis(t *testing.T, url string, now func() int64) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(redisstore.Options{URL: url, Prefix: t.Name(), Timeout: time.Minute, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// A redisColumn is what sets Redis apart in one check.
type redisColumn struct {
	store   *redisstore.Store
	check   int
	changes bool // of limits
	saw     *sightings
}

// name returns the name of a limit: in Redis no check meets the keys of another.
func (r *redisColumn) name(i int) string { return fmt.Sprint(r.check, ".", i) }

// holds reports whether Redis holds a limit, and fails the test unless that is
// as "Largest values" in docs/SEMANTICS.md says.
func (r *redisColumn) holds(t *rapid.T, l stint.Limit) bool {
	beyond := beyondRedis(l)
	if err := r.store.Check("strict", l); (err != nil) != beyond {
		t.Fatalf("%v, beyond the frontier: %v: %v", l, beyond, err)
	}
	if beyond {
		r.saw.refused()
	}
	return !beyond
}

// beyondRedis reports whether Redis refuses a limit.
func beyondRedis(l stint.Limit) bool {
	most := big.NewInt(1 << 50)
	period, capacity := big.NewInt(int64(l.Period())), big.NewInt(max(l.Capacity(), l.Debt()))
	unit, _ := l.Calendar()
	beyond := func(n *big.Int) bool { return n.Cmp(most) > 0 }
	switch l.Algorithm() {
	case meter.GCRA, meter.LeakyQueue:
		t := new(big.Rat).SetFrac(period, new(big.Int).Mul(big.NewInt(l.Count()), big.NewInt(1000))) // in µs
		return beyond(new(big.Int).Mul(t.Num(), capacity)) || t.Denom().Cmp(big.NewInt(1<<30)) > 0
	case meter.TokenBucketInterval:
		periods := new(big.Int).Add(new(big.Int).Quo(capacity, big.NewInt(l.Count())), big.NewInt(1))
		if beyond(periods.Mul(periods, new(big.Int).Quo(period, big.NewInt(1000)))) {
			return true
		}
	case meter.SlidingLog:
		if l.Count() > 10_000 {
			return true
		}
	}
	return max(l.Count(), l.Capacity(), l.Debt()) > 1<<50 ||
		unit == "" && (l.Period()%time.Microsecond != 0 || l.Period()/time.Microsecond > 1<<50)
}

// TestDifferentialRedisSteps holds Redis to the bare arithmetic while the clock
// steps back, by up to a year. (The model and the embedded store take a step
// back for time that stands still, so they are no measure of it.) It steps right
// after a charge alone: a state in Redis is what was charged, while the
// arithmetic also remembers the time of a look, and mints nothing by it.
func TestDifferentialRedisSteps(t *testing.T) {
	s := stepping{saw: &sightings{}}
	s.store = openRedis(t, "unix://"+startRedis(t), func() int64 { return s.now })
	defer s.store.Close()
	for range scaled(10, 20, 400) {
		rapid.Check(t, s.check)
	}
	t.Logf("%d checks, %d steps back", s.checks, s.back)
	if s.back == 0 {
		t.Error("the clock never stepped back")
	}
}

type stepping struct {
	store        *redisstore.Store
	now          int64
	checks, back int
	saw          *sightings
}

func (s *stepping) check(t *rapid.T) {
	s.checks++
	d := newDifferential(t, 1000)
	d.redis = &redisColumn{store: s.store, check: s.checks, saw: s.saw}
	d.now = 1_763_700_000_123_456_000
	d.bind(0)
	l := d.limits[0]
	if l.Period() > 90*24*time.Hour || l.Ban() > 0 {
		return // a year is nothing of it, or the arithmetic is not all
	}
	bound, err := s.store.Bind(l.Name(), l)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	twin, charged := newBare(m), false
	for range rapid.IntRange(1, 100).Draw(t, "steps") {
		d.wait()
		if charged && rapid.IntRange(0, 3).Draw(t, "step") == 0 {
			w := int64(l.Period())
			by := rapid.SampledFrom([]int64{1000, w / 3, w, sat(w, 1000), sat(w, w/2), 3 * w, 3600e9, 365 * 86400e9}).Draw(t, "back")
			d.now = max(d.now-by, 0)
			d.now -= d.now % d.tick
			s.back++
		}
		s.now = d.now
		c := d.cost()
		got, err := bound.Decide(context.Background(), meter.OpTake, "a", c)
		if want := inMicros(twin.take(s.now, c)); err != nil || got != want {
			t.Fatalf("at %d, take %d under %v:\n got %+v, %v\nwant %+v", s.now, c, l, got, err, want)
		}
		charged = got.Taken > 0
	}
}

// inMicros rounds waits up to whole microseconds.
func inMicros(d stint.Decision) stint.Decision {
	s := column{quantum: 1000}
	up := func(n int64) int64 { return s.held63(big.NewInt(n)) }
	if wait, ok := d.RetryAfter.Duration(); ok {
		d.RetryAfter = stint.Wait(up(int64(wait)))
	}
	d.ResetAfter, d.Delay = time.Duration(up(int64(d.ResetAfter))), time.Duration(up(int64(d.Delay)))
	return d
}

// sightings count what came up, by all checks together.
type sightings struct {
	mu         sync.Mutex
	operations int
	beyond     int               // limits beyond the frontier
	changes    int               // of limits
	takes      map[string][2]int // denied and passed, by kind
}

func (s *sightings) operation() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operations++
}

func (s *sightings) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
}

func (s *sightings) refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beyond++
}

func (s *sightings) take(r request, want model.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range r.reference {
		n := s.takes[l.Spec.Kind]
		if want.Alone[i].Allowed {
			n[1]++
		} else {
			n[0]++
		}
		s.takes[l.Spec.Kind] = n
	}
}

// judge wants takes of every kind to have passed, and to have been denied.
func (s *sightings) judge(t *testing.T) {
	t.Logf("%d operations, %d changes, %d limits beyond the frontier; denied and passed: %v", s.operations, s.changes, s.beyond, s.takes)
	for _, kind := range meter.Algorithms() {
		if n := s.takes[kind.String()]; n[0] == 0 || n[1] == 0 {
			t.Errorf("%v: %d denied, %d passed: little was compared", kind, n[0], n[1])
		}
	}
}
