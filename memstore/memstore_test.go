package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

var ctx = context.Background()

// clock is a virtual time that tests set.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() int64              { return c.ns.Load() }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// storeAt returns a store that goes by a clock, which begins at a time.
func storeAt(begin time.Duration, o memstore.Options) (*memstore.Store, *clock) {
	c := new(clock)
	c.advance(begin)
	o.Now = c.now
	return memstore.New(o), c
}

func limit(t testing.TB, text string) stint.Limit {
	t.Helper()
	return made.Limit(t, text)
}

func limiter(t testing.TB, s stint.Store, texts ...string) *stint.Limiter {
	t.Helper()
	var limits []stint.Limit
	for _, text := range texts {
		limits = append(limits, limit(t, text))
	}
	return under(t, s, "test", limits...)
}

func under(t testing.TB, s stint.Store, name string, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	return made.Limiter(t, s, name, limits...)
}

func allow(t testing.TB, l *stint.Limiter, key string) bool {
	t.Helper()
	ok, err := l.Allow(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// everyKind is one limit of each kind and shape of state.
var everyKind = []string{
	"3/1h", "3/7m", "5/1h burst 3 token_bucket_interval", "4/1h burst 2 leaky_queue", "3/1h fixed_window", "3/1h fixed_window from first",
	"3/day in Europe/Paris", "3/1h sliding_log", "3/1h sliding_counter", "3/1h sliding_counter relaxed",
	"3/1h sliding_buckets parts 7", "5000000000/1h sliding_buckets parts 3", "3/1h sliding_log count_denied",
}

// leftOut says that the i-th of several cases is left to the run without the race
// detector.
func leftOut(i int) bool { return race.On && i%4 != 0 }

// TestAgainstMeters compares a store that forgets, splits, rebuilds and resets with
// meters that do not.
func TestAgainstMeters(t *testing.T) {
	for i, text := range everyKind {
		if leftOut(i) {
			continue
		}
		t.Run(text, func(t *testing.T) {
			s, c := storeAt(1_000_000*time.Hour, memstore.Options{})
			l := limiter(t, s, text)
			m, _ := limit(t, text).Meter()
			twins := make(map[string][]uint64)
			rnd := rand.New(rand.NewPCG(1, 2))
			for range 60_000 {
				c.advance(time.Duration(rnd.Int64N(int64(200 * time.Millisecond))))
				key := fmt.Sprint(rnd.IntN(1500))
				if rnd.IntN(20) == 0 {
					if err := l.Reset(ctx, key); err != nil {
						t.Fatal(err)
					}
					delete(twins, key)
					continue
				}
				twin := twins[key]
				if twin == nil {
					twin = make([]uint64, m.Words()+64)
					twins[key] = twin
				}
				cost := 1 + rnd.Int64N(2)
				got, err := l.Take(ctx, key, cost)
				var want stint.Decision
				a, ok := m.Take(twin, c.now(), cost)
				if want.Set(m, a, ok, cost); err != nil || got != want {
					t.Fatalf("key %s at %d, cost %d:\n got %+v, %v\nwant %+v", key, c.now(), cost, got, err, want)
				}
			}
		})
	}
}

// TestFlood holds a bound against newcomers: exhausted keys stay exhausted,
// keys with room keep it, and newcomers together get what the cells give.
func TestFlood(t *testing.T) {
	for i, text := range []string{"2/1h", "2/7h", "2/1h fixed_window", "2/1h sliding_log", "2/1h sliding_buckets parts 3"} {
		if leftOut(i) {
			continue
		}
		t.Run(text, func(t *testing.T) {
			const bound, old, flood = 4096, 1000, 100_000
			s, c := storeAt(time.Hour, memstore.Options{MaxKeys: bound})
			l := limiter(t, s, text)
			for i := range old {
				allow(t, l, fmt.Sprint("old", i))
				if i%2 == 0 {
					allow(t, l, fmt.Sprint("old", i))
				}
			}
			admitted := 0
			for i := range flood {
				if allow(t, l, fmt.Sprint("flood", i)) {
					admitted++
				}
			}
			st := s.Stats()
			if st.Keys > bound {
				t.Errorf("%d keys are above the bound of %d", st.Keys, bound)
			}
			if most := bound - old + 2*1024; admitted > most || admitted < bound-old {
				t.Errorf("%d newcomers passed, want from %d to %d", admitted, bound-old, most)
			}
			if st.Overflowed == 0 {
				t.Error("no decision on a shared cell was counted")
			}
			for i := range old {
				if got, want := allow(t, l, fmt.Sprint("old", i)), i%2 == 1; got != want {
					t.Fatalf("established key %d: allowed %v, want %v", i, got, want)
				}
			}
			c.advance(24 * time.Hour)
			for i := range bound / 2 {
				if !allow(t, l, fmt.Sprint("later", i)) {
					t.Fatalf("newcomer %d denied, though everything has been forgiven", i)
				}
			}
		})
	}
}

// TestInherit gives a key that leaves an overflow cell what the cell held.
func TestInherit(t *testing.T) {
	s, c := storeAt(time.Hour, memstore.Options{MaxKeys: 2})
	short := under(t, s, "short", limit(t, "1/1s"))
	long := under(t, s, "long", limit(t, "1/1h"))
	allow(t, short, "a")
	allow(t, short, "b") // the store is full
	if !allow(t, long, "newcomer") || allow(t, long, "newcomer") {
		t.Fatal("the cell admits once")
	}
	c.advance(time.Minute) // a and b are as if never seen
	if allow(t, long, "newcomer") {
		t.Error("a place of its own freed the key")
	}
	if got := s.Stats(); got.Keys != 1 || got.Evicted != 2 {
		t.Errorf("%+v, want 1 key and 2 evicted", got)
	}
}

// TestMerge holds logs to a bound in bytes: they become stricter, not laxer.
func TestMerge(t *testing.T) {
	s, c := storeAt(time.Hour, memstore.Options{MaxKeys: 8, MaxBytes: 1})
	l := limiter(t, s, "1000/1h sliding_log")
	passed := 0
	for range 1200 {
		c.advance(time.Second)
		if allow(t, l, "a") {
			passed++
		}
	}
	if st := s.Stats(); passed != 1000 || st.Merged+st.Overflowed == 0 || st.Bytes > 1<<16 {
		t.Errorf("%d passed, %+v", passed, st)
	}
}

// TestShards takes layers on several keys in every order at once: a deadlock
// would stop it, and one unit too many would show.
func TestShards(t *testing.T) {
	s, _ := storeAt(0, memstore.Options{})
	b := made.Bound(t, s, "1000/1h", limit(t, "1000/1h"))
	var passed [8]atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 0))
			for range 3000 {
				order := rnd.Perm(8)[:3]
				var layers []stint.Layer
				for _, k := range order {
					layers = append(layers, stint.Layer{Bound: b, Key: fmt.Sprint(k)})
				}
				d, err := s.Decide(ctx, meter.OpTake, layers, 1)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					for _, k := range order {
						passed[k].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for k := range passed {
		d, _ := b.Decide(ctx, meter.OpPeek, fmt.Sprint(k), 0)
		if got := passed[k].Load(); got > 1000 || got+d.Remaining != 1000 {
			t.Errorf("key %d: %d passed and %d remain of 1000", k, got, d.Remaining)
		}
	}
}

// TestChange sets other limits while they are in use.
func TestChange(t *testing.T) {
	s := memstore.New(memstore.Options{})
	named := func(text string) stint.Limit { return limit(t, text).WithName("api") }
	l := under(t, s, "changing", named("100/1h"))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range 5000 {
				if _, err := l.Take(ctx, fmt.Sprint(i%50), 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, text := range []string{"50/1h", "1000/7h", "10/1h fixed_window", "20/1h fixed_window", "10/1h sliding_log", "100/1h sliding_buckets", "100/1h"} {
		if err := l.SetLimits(named(text)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if got := l.Limits()[0].String(); got != "100/1h" {
		t.Errorf("the limiter holds %s", got)
	}
	if st := s.Stats(); st.Keys > 4*50 {
		t.Errorf("%+v", st)
	}
}

func TestRefused(t *testing.T) {
	s, other := memstore.New(memstore.Options{MaxLog: 10}), memstore.New(memstore.Options{})
	b, _ := s.Bind("5/1s", limit(t, "5/1s"))
	foreign, _ := other.Bind("5/1s", limit(t, "5/1s"))
	_, _, ttl := s.Reserve(ctx, []stint.Layer{{Bound: b, Key: "a"}}, 1, 0)
	_, largeLog := s.Bind("11/1s sliding_log", limit(t, "11/1s sliding_log"))
	_, twice := s.Bind("api", limit(t, "5/1s"), limit(t, "6/1s"))
	_, none := s.Bind("api")
	_, zero := s.Bind("api", stint.Limit{})
	_, stranger := s.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: foreign, Key: "a"}}, 1)
	_, same := s.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: b, Key: "a"}, {Bound: b, Key: "a"}}, 1)
	_, cost := b.Decide(ctx, meter.OpTake, "a", -1)
	_, costAllow := b.Allow(ctx, "a", -1)
	_, token := s.Settle(ctx, "nonsense", 1)
	_, refund := s.Refund(ctx, []stint.Layer{{Bound: b, Key: "a"}}, -1)
	for _, c := range []struct {
		what string
		got  error
		want error // or nil for any
	}{
		{"ttl", ttl, nil}, {"log", largeLog, nil}, {"twice", twice, stint.ErrLayers}, {"none", none, stint.ErrLayers},
		{"zero limit", zero, nil}, {"stranger", stranger, stint.ErrLayers}, {"same", same, stint.ErrLayers},
		{"cost", cost, stint.ErrCost}, {"cost of Allow", costAllow, stint.ErrCost},
		{"token", token, stint.ErrReservation}, {"refund", refund, stint.ErrCost},
	} {
		if c.got == nil || c.want != nil && !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	s := memstore.New(memstore.Options{})
	l := limiter(t, s, "10/1s")
	allow(t, l, "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, bind := s.Bind("1/1s", limit(t, "1/1s"))
	_, short := l.Allow(ctx, "a")
	_, whole := l.Take(ctx, "a", 1)
	_, peek := l.Peek(ctx, "a", 1)
	_, _, reserve := l.Reserve(ctx, "a", 1, time.Second)
	_, settle := l.Reservation("x").Settle(ctx, 1)
	_, refund := l.Refund(ctx, "a", 1)
	for i, err := range []error{s.Close(), bind, short, whole, peek, reserve, settle, refund, l.Reset(ctx, "a")} {
		if !errors.Is(err, stint.ErrClosed) {
			t.Errorf("call %d after Close: %v", i, err)
		}
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// TestNoAllocation holds every fixed kind to no allocation a decision.
func TestNoAllocation(t *testing.T) {
	s := memstore.New(memstore.Options{})
	for _, texts := range [][]string{
		{"1000000/1s"}, {"7000000/1m"}, {"1/1h"}, {"1000000/1s fixed_window"}, {"1000000/1s sliding_counter"},
		{"1000000/1s sliding_buckets"}, {"1000000/1s token_bucket_interval"}, {"10/1h sliding_log"},
		{"1000000/day in Europe/Paris"}, {"1000000/1s", "60000000/1m", "1000000000/1h"}, {"1/1m", "1/1h"},
	} {
		l := limiter(t, s, texts...)
		key := "key"
		for range 100 {
			allow(t, l, key)
		}
		for what, f := range map[string]func(){
			"Allow": func() { _, _ = l.Allow(ctx, key) },
			"Take":  func() { _, _ = l.Take(ctx, key, 1) },
			"Peek":  func() { _, _ = l.Peek(ctx, key, 1) },
		} {
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%v: %s allocates %v times", texts, what, n)
			}
		}
	}
}

// TestSharedCells: layers that share an overflow cell pass or are denied
// together, and say so alike.
func TestSharedCells(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 1, Now: func() int64 { return 0 }})
	b := made.Bound(t, s, "1/1h fixed_window", limit(t, "1/1h fixed_window"))
	if _, err := b.Decide(t.Context(), meter.OpTake, "the only place", 1); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		layers := make([]stint.Layer, 60) // of 1,024 cells: some are shared
		for k := range layers {
			layers[k] = stint.Layer{Bound: b, Key: fmt.Sprint(k), Answers: make([]stint.Decision, 1)}
		}
		d, err := s.Decide(t.Context(), meter.OpTake, layers, 1)
		if err != nil || d.Allowed != (i == 0) || d.Allowed != (d.RetryAfter == 0) {
			t.Fatalf("%d: %+v, %v", i, d, err)
		}
		for _, l := range layers {
			if one := l.Answers[0]; d.Allowed && (!one.Allowed || one.Taken != 1 || one.RetryAfter != 0 || one.Remaining != 0) {
				t.Errorf("%d: %+v", i, one)
			}
		}
		if err := s.Reset(t.Context(), layers); err != nil {
			t.Fatal(err)
		}
	}
}
