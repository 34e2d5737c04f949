package memstore_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// sharing returns limiters of one name, one for each limit.
func sharing(t testing.TB, s stint.Store, texts ...string) []*stint.Limiter {
	var all []*stint.Limiter
	for _, text := range texts {
		all = append(all, under(t, s, "api", limit(t, text)))
	}
	return all
}

func taken(t testing.TB, l *stint.Limiter, key string, cost int64) stint.Decision {
	t.Helper()
	d, err := l.Take(ctx, key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestInTurns asks two limits of one identity in turns, 100 a second for ten minutes:
// what passes under each is bounded by the greater of their capacities and their rates.
// The rule that each decision converts what is in use and cuts it at its capacity lets
// all 30,000 pass that the first is asked for, in the first three rows.
func TestInTurns(t *testing.T) {
	for _, c := range []struct {
		first, second string
		passed        [2]int64
		closed        time.Duration // a second that is exhausted, by an exhausted first
	}{
		{"100/1m", "10/1m", [2]int64{1094, 5}, 54600 * time.Millisecond},
		{"1000/1m", "10/1m", [2]int64{10993, 5}, 59460 * time.Millisecond},
		{"100/1m fixed_window", "10/1m fixed_window", [2]int64{950, 50}, time.Minute},
		{"100/1m fixed_window from first", "10/1m fixed_window from first", [2]int64{950, 50}, time.Minute},
		{"100/1m sliding_log", "10/1m sliding_log", [2]int64{995, 5}, time.Minute},
		{"10/1h burst 10", "100/1h burst 10", [2]int64{13, 6}, 6 * time.Minute},
	} {
		t.Run(c.first+", "+c.second, func(t *testing.T) {
			var clock clock
			clock.advance(1000 * time.Hour)
			l := sharing(t, memstore.New(memstore.Options{Now: clock.now}), c.first, c.second)
			var passed [2]int64
			for i := range 60_000 {
				passed[i%2] += taken(t, l[i%2], "a", 1).Taken
				clock.advance(10 * time.Millisecond)
			}
			if passed != c.passed {
				t.Errorf("%d passed, want %d", passed, c.passed)
			}
			clock.advance(24 * time.Hour)
			taken(t, l[0], "a", l[0].Limits()[0].Capacity())
			if d, err := l[1].Peek(ctx, "a", 1); err != nil || time.Duration(d.RetryAfter) != c.closed && c.closed != 6*time.Minute {
				t.Errorf("the second waits for %v, %v; want %v", d.RetryAfter, err, c.closed)
			}
		})
	}
}

// TestEachItsOwn finds that a limit of another period, calendar or algorithm, or by
// another name, starts unused, and that going back finds what was used.
func TestEachItsOwn(t *testing.T) {
	var c clock
	c.advance(24 * 1000 * time.Hour)
	l := under(t, memstore.New(memstore.Options{Now: c.now}), "api", limit(t, "10/1m"))
	passed := int64(0)
	for i := range 5000 {
		text := []string{"10/1m", "10/24h", "10/1m fixed_window", "10 per day in UTC", "10/1m sliding_buckets parts 7", "10/1m sliding_buckets"}[i%6]
		set := limit(t, text)
		if i%12 >= 6 {
			set = set.WithName("by name")
		}
		if err := l.SetLimits(set); err != nil {
			t.Fatal(err)
		}
		passed += taken(t, l, "a", 1).Taken
	}
	if passed != 12*10 {
		t.Errorf("%d passed at one instant", passed)
	}
}

// TestSecondNumbers binds other numbers while thousands of keys are in use: their
// states move to wider slots and back, and stay what they are.
func TestSecondNumbers(t *testing.T) {
	for _, texts := range [][]string{{"10/1h", "1000/1h"}, {"10/1h", "7/1h burst 20"}, {"7/1h", "1000/1h burst 12"},
		{"5/1h burst 9 leaky_queue", "10/1h leaky_queue"}, {"10/1h token_bucket_interval", "20/1h burst 90 token_bucket_interval"}} {
		t.Run(texts[0]+", "+texts[1], func(t *testing.T) {
			s, c := storeAt(1_000_000*time.Hour, memstore.Options{})
			l := under(t, s, "api", limit(t, texts[0]))
			most := l.Limits()[0].Capacity()
			const keys = 5000
			for i := range keys {
				taken(t, l, fmt.Sprint(i), 1+int64(i)%most)
			}
			alone := s.Stats()
			if err := l.SetLimits(limit(t, texts[1])); err != nil {
				t.Fatal(err)
			}
			both, room := s.Stats(), l.Limits()[0].Capacity()
			for i := range keys {
				if d, err := l.Peek(ctx, fmt.Sprint(i), 1); err != nil || d.Remaining != max(room-1-int64(i)%most, 0) {
					t.Fatalf("key %d: %+v, %v", i, d, err)
				}
			}
			t.Logf("a key: %d bytes, with other numbers %d", alone.Bytes/keys, both.Bytes/keys)
			if both.Keys != keys || both.Limits != 2 || both.Bytes > alone.Bytes*2+1<<16 {
				t.Errorf("%+v", both)
			}
			runtime.GC()
			for range 200 { // until no state has the first numbers
				c.advance(time.Minute)
				s.Stats()
				for i := range 10 {
					taken(t, l, fmt.Sprint(i), 1)
				}
			}
			if st := s.Stats(); st.Limits != 1 || st.Keys > keys {
				t.Errorf("the former numbers are still there: %+v", st)
			}
			want, _ := l.Peek(ctx, "0", 1)
			s = restarted(t, s, memstore.Options{Now: c.now})
			if d, _ := under(t, s, "api", limit(t, texts[1])).Peek(ctx, "0", 1); d != want {
				t.Errorf("restarted: %+v, want %+v", d, want)
			}
		})
	}
}

// TestManyNumbers gives each of many keys numbers of its own, and one key many:
// none is locked out, nothing stays, and a number that is given again means the new
// limit.
func TestManyNumbers(t *testing.T) {
	s, c := storeAt(1_000_000*time.Hour, memstore.Options{})
	for round := range 3 {
		for i := range 1000 {
			l := under(t, s, "callers", stint.New(int64(5+i*(1+round)), time.Hour).WithName("callers"))
			key := fmt.Sprint("key", i)
			if d := taken(t, l, key, 5); !d.Allowed || d.Remaining != l.Limits()[0].Count()-5 {
				t.Fatalf("round %d, limit %d: %+v", round, i, d)
			}
			if d := taken(t, l, "one", 1); round == 0 && d.Remaining < 4 {
				t.Fatalf("limit %d: %+v", i, d)
			}
			c.advance(time.Second)
		}
		runtime.GC()
		c.advance(3 * time.Hour)
	}
	released(t, s, 0)
	if st := s.Stats(); st.Keys != 0 || st.Bytes > 1<<16 {
		t.Errorf("left over: %+v", st)
	}
}

// TestNumbersRace changes limits without a pause under many goroutines, at periods
// of a millisecond: no more passes than the largest capacity and the fastest rate, of
// each identity.
func TestNumbersRace(t *testing.T) {
	s := memstore.New(memstore.Options{})
	l := under(t, s, "api", limit(t, "20/1ms burst 20"))
	var passed atomic.Int64
	var wg sync.WaitGroup
	begun, stop := time.Now(), make(chan struct{})
	for range 1000 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					ok, err := l.Allow(ctx, "a")
					if err != nil {
						t.Error(err)
						return
					}
					if ok {
						passed.Add(1)
					}
				}
			}
		})
	}
	changes := 0
	for time.Since(begun) < time.Second || passed.Load() < 100 && time.Since(begun) < time.Minute {
		for _, text := range []string{"10/1ms burst 20", "20/1ms burst 3", "7/1ms burst 19"} {
			if err := l.SetLimits(limit(t, text)); err != nil {
				t.Fatal(err)
			}
			changes++
		}
	}
	close(stop)
	wg.Wait()
	elapsed := time.Since(begun)
	most := 20 + 20*(elapsed.Milliseconds()+1)
	t.Logf("%d passed in %v through %d changes, %d may", passed.Load(), elapsed, changes, most)
	if passed.Load() > most || passed.Load() < 100 {
		t.Errorf("%d passed, %d may", passed.Load(), most)
	}
}

// TestBoundWhileSaved has keys decided under four more limits while a snapshot is
// written that begins with one: it can be read, and no key is freed.
func TestBoundWhileSaved(t *testing.T) {
	s, c := storeAt(1000*time.Hour, memstore.Options{})
	// Enough keys under the first name that they are written before the other's are copied.
	before := under(t, s, "a", limit(t, "10/24h"))
	for i := range 100_000 {
		taken(t, before, fmt.Sprint(i), 1)
	}
	one := under(t, s, "b", limit(t, "10/24h"))
	for i := range 1000 {
		taken(t, one, fmt.Sprint(i), 10)
	}
	file := &meanwhile{do: sync.OnceFunc(func() {
		for n := int64(11); n < 15; n++ {
			l := under(t, s, "b", limit(t, fmt.Sprint(n, "/24h")))
			for i := range 1000 {
				taken(t, l, fmt.Sprint(i), 1)
			}
		}
	})}
	if err := s.Save(file); err != nil {
		t.Fatal(err)
	}
	next := loaded(t, file.Bytes(), memstore.Options{Now: c.now})
	again := under(t, next, "b", limit(t, "10/24h"))
	for i := range 1000 {
		if d := taken(t, again, fmt.Sprint(i), 1); d.Allowed {
			t.Fatalf("key %d is free: %+v", i, d)
		}
	}
}

// TestReservedBeforeOtherNumbers settles for less what was reserved under other numbers:
// windows give back, a bucket does not.
func TestReservedBeforeOtherNumbers(t *testing.T) {
	for _, c := range []struct {
		from, to string
		left     int64
	}{
		{"1000/24h fixed_window", "500/24h fixed_window", 494},
		{"1000/24h sliding_log", "500/24h sliding_log", 494},
		{"1000/24h", "500/24h", 459},
		{"1000/24h", "1000/24h", 994},
	} {
		clock := clock{}
		clock.advance(24 * time.Hour)
		l := limiter(t, memstore.New(memstore.Options{Now: clock.now}), c.from)
		_, r, err := l.Reserve(ctx, "k", 40, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.SetLimits(limit(t, c.to)); err != nil {
			t.Fatal(err)
		}
		taken(t, l, "k", 1)
		if d, err := r.Settle(ctx, 5); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if d, _ := l.Peek(ctx, "k", 1); d.Remaining != c.left {
			t.Errorf("%s to %s: %d left, want %d", c.from, c.to, d.Remaining, c.left)
		}
	}
}

// TestBindMany binds thousands of limits of one identity, and again after they were let go:
// each takes about as much as one of a few hundred.
func TestBindMany(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		testBindMany(t, func(n int) stint.Limit { return stint.New(int64(n), time.Minute) })
	})
	t.Run("with a ban each", func(t *testing.T) {
		testBindMany(t, func(n int) stint.Limit {
			return stint.New(int64(n), time.Minute).WithBan(time.Duration(n) * time.Second)
		})
	})
}

func testBindMany(t *testing.T, numbered func(n int) stint.Limit) {
	bytes := func(n int) uint64 {
		s, c := storeAt(1000*time.Hour, memstore.Options{})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 2 {
			var held []stint.Bound
			for i := range n {
				b := made.Bound(t, s, "rule", numbered(i+1))
				held = append(held, b)
			}
			if st := s.Stats(); st.Limits < n {
				t.Fatalf("%d limits of %d", st.Limits, n)
			}
			taken(t, under(t, s, "rule", numbered(n)), "k", int64(n))
			runtime.KeepAlive(held)
			held = nil
			runtime.GC()
			c.advance(time.Hour)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	few, many := bytes(500), bytes(8000)
	t.Logf("%d bytes for each of 500, %d for each of 8,000", few, many)
	if many > 3*few {
		t.Errorf("%d bytes for each of 8,000 limits, %d for each of 500", many, few)
	}
}
