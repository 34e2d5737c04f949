package redisstore_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/storetest"
)

var (
	_ policy.ModeStore = (*redisstore.Store)(nil)
	_ policy.Checker   = (*redisstore.Store)(nil)
)

// TestModeWords refuses words that are no mode, and limits that the server cannot
// hold, before any is bound.
func TestModeWords(t *testing.T) {
	s := nodes(t, redistest.Start(t).URL(), 1, redisstore.Options{})[0]
	if _, err := s.BindMode("sloppy", "a", stint.PerHour(1)); err == nil {
		t.Error("an unknown mode is bound")
	}
	if err := s.Check("sloppy", stint.PerHour(1)); err == nil {
		t.Error("an unknown mode is checked")
	}
	log := stint.New(1_000_000, time.Hour).WithAlgorithm(meter.SlidingLog)
	for mode, fits := range map[string]bool{"": false, "strict": false, "lease": false, "share": true} {
		if err := s.Check(mode, log); (err == nil) != fits {
			t.Errorf("mode %q: a log of a million: %v", mode, err)
		}
	}
}

// virtual is a clock that tests move.
type virtual struct{ ns atomic.Int64 }

func newVirtual() *virtual {
	v := new(virtual)
	v.ns.Store(int64(50 * 365 * 24 * time.Hour))
	return v
}

func (v *virtual) now() int64          { return v.ns.Load() }
func (v *virtual) add(d time.Duration) { v.ns.Add(int64(d)) }

// nodes returns stores of their own on one server, closed when the test ends.
func nodes(t testing.TB, url string, n int, o redisstore.Options) []*redisstore.Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = fmt.Sprint("test", prefixes.Add(1))
	}
	if o.NewKeys == 0 {
		o.NewKeys = -1 // or the store asks the server now and then how much room it has, and calls are counted
	}
	all := make([]*redisstore.Store, n)
	for i := range all {
		all[i] = open(t, url, o)
		t.Cleanup(func() { _ = all[i].Close() })
	}
	return all
}

func bindIn(t testing.TB, s *redisstore.Store, m redisstore.Mode, texts ...string) stint.Bound {
	t.Helper()
	return bind(t, s.Mode(m), texts...)
}

// named binds a limit in a mode, under the mode's name.
func named(t testing.TB, s *redisstore.Store, m redisstore.Mode, text string) stint.Bound {
	t.Helper()
	b, err := s.Mode(m).Bind(m.String(), parse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestModeStore holds views to what every store must do: one node's share, and,
// with STINT_SOAK=1, the strict one without its denial cache.
func TestModeStore(t *testing.T) {
	one := client(t, redistest.Start(t).Addr)
	for _, c := range []struct {
		mode    redisstore.Mode
		modes   redisstore.Modes
		quantum time.Duration
	}{
		{redisstore.Strict, redisstore.Modes{DenialCache: -1}, time.Microsecond},
		{redisstore.Share, redisstore.Modes{}, time.Nanosecond},
	} {
		if c.mode == redisstore.Strict && os.Getenv("STINT_SOAK") == "" {
			continue // what it does beside the store itself, the other tests look at
		}
		t.Run(c.mode.String(), func(t *testing.T) {
			storetest.Suite{
				Quantum: c.quantum,
				Part:    part(),
				Open: func(t testing.TB, now func() int64) stint.Store {
					return open(t, "", redisstore.Options{Client: one, Now: now, Modes: c.modes}).Mode(c.mode)
				},
			}.Run(t)
		})
	}
}

func TestParseMode(t *testing.T) {
	for _, m := range []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async, redisstore.Share} {
		if got, err := redisstore.ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if _, err := redisstore.ParseMode("eventual"); err == nil {
		t.Error("a mode of no such name was found")
	}
}

// TestModesInOneRequest takes one request through layers in all modes: it passes
// when all let it pass, and when one denies, the others have kept what they had,
// whether async sends each charge at once (of 7 units) or many together.
func TestModesInOneRequest(t *testing.T) {
	server := redistest.Start(t)
	for i := range 8 {
		denies, unsent := redisstore.Mode(i/2), []int64{1000, 7}[i%2]
		t.Run(fmt.Sprintf("%v/%d", denies, unsent), func(t *testing.T) {
			clock := newVirtual()
			s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: unsent}})[0]
			var layers []stint.Layer
			for _, m := range []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async, redisstore.Share} {
				text := "1000/1h burst 10000"
				if m == denies {
					text = "1000/1h burst 1000"
				}
				layers = append(layers, stint.Layer{Bound: named(t, s, m, text), Key: "k", Answers: make([]stint.Decision, 1)})
			}
			view := s.Mode(redisstore.Strict)
			passed := int64(0)
			for {
				d, err := view.Decide(ctx, meter.OpTake, layers, 7)
				if err != nil {
					t.Fatal(err)
				}
				if !d.Allowed {
					if d.Denied != 1<<denies || d.RetryAfter <= 0 || d.Taken != 0 {
						t.Fatalf("denied as %+v", d)
					}
					break
				}
				if passed += 7; d.Taken != 7 || passed > 1000 {
					t.Fatalf("%d passed: %+v", passed, d)
				}
			}
			if least := int64(1000 - 100 - 7); passed < least { // a lease passes B − S at the least
				t.Errorf("%d passed, at least %d should", passed, least)
			}
			for range 50 { // all denied: nothing may leak
				if d, err := view.Decide(ctx, meter.OpTake, layers, 7); err != nil || d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			async := layers[redisstore.Async].Answers
			for _, look := range []struct {
				op   meter.Op
				cost int64
			}{{meter.OpPeek, 1}, {meter.OpPeek, 0}, {meter.OpTake, 0}} {
				d, err := view.Decide(ctx, look.op, layers, look.cost)
				if err != nil || d.Taken != 0 || look.cost == 0 && !d.Allowed {
					t.Errorf("%v of %d: %+v, %v", look.op, look.cost, d, err)
				}
				if want := async[0].Limit - passed; async[0].Remaining != want {
					t.Errorf("%v of %d: %d left in async, of which not all has been sent; want %d", look.op, look.cost, async[0].Remaining, want)
				}
			}
			clock.add(200 * time.Millisecond) // what is unsent is sent, and what is known too old
			for i, l := range layers {
				if redisstore.Mode(i) == denies {
					continue
				}
				got := left(t, l.Bound, "k")
				want := int64(10000) - passed
				if redisstore.Mode(i) == redisstore.Lease { // what is in hand counts as used for the server: take it all
					got, want = 0, 9000-passed
					for take(t, l.Bound, "k", 1).Allowed {
						got++
					}
				}
				if got != want {
					t.Errorf("%v: %d left, %d should be", redisstore.Mode(i), got, want)
				}
			}
		})
	}
}

// left peeks.
func left(t testing.TB, b stint.Bound, key string) int64 {
	t.Helper()
	d, err := b.Decide(ctx, meter.OpPeek, key, 1)
	if err == nil {
		d, err = b.Decide(ctx, meter.OpPeek, key, 1) // by now an async one is known anew
	}
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// TestModesVerbs goes through the verbs with layers in all modes.
func TestModesVerbs(t *testing.T) {
	server := redistest.Start(t)
	clock := newVirtual()
	s := nodes(t, server.URL(), 1, redisstore.Options{Now: clock.now})[0]
	var layers []stint.Layer
	for _, m := range []redisstore.Mode{redisstore.Share, redisstore.Strict, redisstore.Async, redisstore.Lease} {
		layers = append(layers, stint.Layer{Bound: named(t, s, m, "10/1h"), Key: "k"})
	}
	view := s.Mode(redisstore.Strict)
	check := func(what string, want int64) {
		t.Helper()
		for i, l := range layers {
			clock.add(time.Second)
			if got := left(t, l.Bound, "k"); got != want {
				t.Errorf("%s: layer %d has %d left, want %d", what, i, got, want)
			}
		}
	}
	d, id, err := view.Reserve(ctx, layers, 6, time.Hour)
	if err != nil || !d.Allowed || d.Taken != 6 {
		t.Fatalf("%+v, %v", d, err)
	}
	check("reserved 6", 4)
	if d, _, err := view.Reserve(ctx, layers, 6, time.Hour); err != nil || d.Allowed {
		t.Fatalf("6 of 4 are reserved: %+v, %v", d, err)
	}
	check("denied", 4)
	for range 2 { // again: once
		if _, err := view.Settle(ctx, id, 2); err != nil {
			t.Fatal(err)
		}
		check("settled at 2", 8)
	}
	if d, err := view.Decide(ctx, meter.OpTakeUpTo, layers, 100); err != nil || d.Taken != 8 {
		t.Fatalf("took %+v, %v", d, err)
	}
	check("took the rest", 0)
	if d, err := view.Decide(ctx, meter.OpTakeUpTo, layers, 100); err != nil || d.Allowed || d.Taken != 0 {
		t.Fatalf("took %+v, %v", d, err)
	}
	if _, err := view.Refund(ctx, layers, 3); err != nil {
		t.Fatal(err)
	}
	check("refunded 3", 3)
	if err := view.Reset(ctx, layers); err != nil {
		t.Fatal(err)
	}
	check("reset", 10)
	if _, err := view.Settle(ctx, "share-nothing", 0); !errors.Is(err, stint.ErrReservation) {
		t.Errorf("an ID that was made up: %v", err)
	}
	if err := view.Close(); err != nil {
		t.Fatal(err)
	}
	for i, l := range layers {
		if _, err := l.Bound.Decide(ctx, meter.OpTake, "k", 1); !errors.Is(err, stint.ErrClosed) {
			t.Errorf("layer %d of a closed store: %v", i, err)
		}
	}
}

// TestNodeClock says that the clock of leases goes on, and never back.
func TestNodeClock(t *testing.T) {
	now := redisstore.NodeClock()
	before, start := now(), time.Now()
	for last := before; time.Since(start) < 50*time.Millisecond; {
		n := now()
		if n < last {
			t.Fatalf("from %d back to %d", last, n)
		}
		last = n
	}
	if passed := time.Duration(now() - before); passed < 50*time.Millisecond {
		t.Errorf("%v for more than 50 ms", passed)
	}
}

// TestDegradedOnce has a server away under a mode that also answers from memory: an
// answer from memory does not end the outage, so OnChange is called once for it, and
// once when the server is there again.
func TestDegradedOnce(t *testing.T) {
	server := redistest.Start(t)
	shared := open(t, server.URL(), redisstore.Options{Prefix: "degraded", NewKeys: -1})
	var mu sync.Mutex
	var changes []error
	store := fallback.New(shared.Mode(redisstore.Async), fallback.Options{OnChange: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		changes = append(changes, err)
	}})
	defer store.Close()
	limit := made.Bound(t, store, "api", parse(t, "100000/24h"))
	known := func() error {
		_, err := limit.Allow(ctx, "known", 1)
		return err
	}
	if err := known(); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for i := range 200 {
		if _, err := limit.Allow(ctx, fmt.Sprint("new ", i), 1); err != nil {
			t.Fatal(err)
		}
		if err := known(); err != nil { // this process knows its usage
			t.Fatal(err)
		}
	}
	mu.Lock()
	outage := slices.Clone(changes)
	mu.Unlock()
	if len(outage) != 1 || outage[0] == nil {
		t.Errorf("%d changes in an outage: %v", len(outage), outage[:min(4, len(outage))])
	}
	server.Restart(t)
	eventually(t, "the outage does not end", func() bool {
		if _, err := limit.Allow(ctx, "later", 1); err != nil {
			t.Fatal(err)
		}
		return !store.Stats().Degraded
	})
	if mu.Lock(); len(changes) != 2 || changes[1] != nil {
		t.Errorf("%d changes with the end of the outage", len(changes))
	}
	mu.Unlock()
}

// TestSharesRecover binds 20,000 limits of mode Share that nobody holds, and finds
// few of them afterwards. One that is held, and one that is bound anew, count on.
func TestSharesRecover(t *testing.T) {
	store := open(t, "redis://127.0.0.1:1", redisstore.Options{}) // this mode asks no server
	shares := store.Mode(redisstore.Share)
	take := func(name string, text string, want int64) {
		t.Helper()
		b := made.Bound(t, shares, name, parse(t, text))
		if d, err := b.Decide(ctx, meter.OpTake, "a", 1); err != nil || !d.Allowed || d.Remaining != want {
			t.Errorf("%s: %+v, %v: want %d remaining", name, d, err, want)
		}
	}
	held := made.Bound(t, shares, "held", parse(t, "10/h"))
	take("held", "10/h", 9)
	take("dropped", "10/h", 9)
	for i := range 20_000 {
		if _, err := shares.Bind(fmt.Sprint("name ", i), parse(t, "10/h")); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			runtime.GC()
		}
	}
	if n := store.KnownShares(); n > 5000 {
		t.Errorf("%d limits are known that nobody holds", n)
	}
	take("dropped", "10/h", 8)
	take("held", "20/h", 18)
	runtime.GC()
	if got := held.Limits()[0]; got != parse(t, "20/h") {
		t.Errorf("what is held stands at %v, want what was bound last", got)
	}
}
