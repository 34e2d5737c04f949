package stint_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// lateStore is a store that callers reach a little later than they meant to, as those do
// whose timers are late.
func lateStore(random *rand.Rand, most time.Duration) *memstore.Store {
	var mu sync.Mutex
	last := int64(0)
	return memstore.New(memstore.Options{Now: func() int64 {
		mu.Lock()
		defer mu.Unlock()
		last = max(last, time.Now().UnixNano()+random.Int64N(int64(most)))
		return last
	}})
}

// TestWaitLateTimers lets eight goroutines wait all the time, each of them up to 3 ms late:
// the whole rate passes all the same, whatever the burst.
func TestWaitLateTimers(t *testing.T) {
	for _, text := range []string{"100/s burst 1", "500/s burst 1", "500/s burst 5", "500/s burst 1; 10_000/m burst 100"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOn(t, lateStore(rand.New(rand.NewPCG(1, 2)), 3*ms), split(text)...)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				var passes atomic.Int64
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						for l.Wait(ctx, "k", 1) == nil {
							passes.Add(1)
						}
					})
				}
				all.Wait()
				var count int64
				_, _ = fmt.Sscanf(text, "%d/s", &count)
				if strings.Contains(text, "10_000") {
					count = 10_000 / 60
				}
				if n := passes.Load(); n < 20*count*99/100 || n > 20*count+100+count {
					t.Errorf("%d passed of %d", n, 20*count)
				}
			})
		})
	}
}

// TestWaitLateBeside is TestWaitLateTimers under two limits, while one behind the waiters waits for more of
// the second than they do: it is told a later moment than they are.
func TestWaitLateBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lateStore(rand.New(rand.NewPCG(1, 2)), 3*ms)
		own, all := namedLimiter(t, store, "own", "500/s burst 1"), namedLimiter(t, store, "all", "10_000/m burst 20_000")
		if d, err := all.Take(bg, "k", 10_000); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		var group sync.WaitGroup
		for range 2000 {
			group.Go(func() { _ = stint.All(own.Key("k"), all.Key("k")).Wait(bg) })
		}
		time.Sleep(50 * ms)
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = all.Wait(ctx, "k", 20_000) }()
		began := time.Now()
		if group.Wait(); time.Since(began) > 4050*ms {
			t.Errorf("2000 at 500/s start within %v", time.Since(began))
		}
		stop()
	})
}

// TestWaitGivenBack gives back what fills one bucket, while a hundred wait who would have passed under
// another: that one lets through what it lets through from this moment on.
func TestWaitGivenBack(t *testing.T) {
	for _, how := range []string{"settle", "refund", "raise"} {
		for _, apart := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				second, store := made.Limit(t, "100/s burst 1"), memstore.New(memstore.Options{})
				others := []stint.Limit{second}
				if apart {
					others = nil
				}
				hour := made.Limiter(t, store, "hour", append(others, made.Limit(t, "500/h"))...)
				wait := func(ctx context.Context) error { return hour.Wait(ctx, "k", 1) }
				if apart {
					own := made.Limiter(t, store, "second", second)
					must(t, own, 1)
					wait = stint.All(own.Key("k"), hour.Key("k")).Wait
				}
				var reserved []*stint.Reservation
				for range 500 {
					time.Sleep(10 * ms)
					_, r, err := hour.Reserve(t.Context(), "k", 1, time.Hour)
					if err != nil {
						t.Fatal(err)
					}
					reserved = append(reserved, r)
				}
				ctx, stop := context.WithCancel(t.Context())
				if apart { // one before them waits for a key of its own, too
					busy := made.Limiter(t, store, "busy", made.Limit(t, "1/h"))
					must(t, busy, 1)
					go func() { _ = stint.All(busy.Key("k"), hour.Key("k")).Wait(ctx) }()
					synctest.Wait()
				}
				var passed atomic.Int64
				for range 200 {
					go func() {
						if wait(ctx) == nil {
							passed.Add(1)
						}
					}()
				}
				time.Sleep(1530 * ms)
				before := passed.Load()
				switch how {
				case "settle":
					for _, r := range reserved {
						_, _ = r.Settle(ctx, 0)
					}
				case "refund":
					_, _ = hour.Refund(ctx, "k", 500)
				case "raise":
					if err := hour.SetLimits(append(others, made.Limit(t, "500/h burst 5000"))...); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(505 * ms)
				if n := passed.Load() - before; n != 51 {
					t.Errorf("%s, apart %v: %d passed within half a second, want 51", how, apart, n)
				}
				stop()
			})
		}
	}
}

// TestWaitFair lets one caller wait for five units, beside two that ask all the time without
// waiting: it gets what it would if they were not there.
func TestWaitFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "50/s burst 10")
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		waited, taken := 0, atomic.Int64{}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for ctx.Err() == nil {
					if ok, err := l.Allow(ctx, "k"); err != nil {
						t.Error(err)
					} else if ok {
						taken.Add(1)
					}
					time.Sleep(200 * time.Microsecond)
				}
			})
		}
		all.Go(func() {
			for l.Wait(ctx, "k", 5) == nil {
				waited++
			}
		})
		all.Wait()
		if waited < 30 {
			t.Errorf("it passed %d times, the others took %d", waited, taken.Load())
		}
	})
}

// TestBesideWaiters has every way to ask without waiting answered as if what those who wait
// need were taken: through that limiter, for that key, and as long as they wait.
func TestBesideWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		l, other := limiterOn(t, store, "1/s burst 10"), limiterOn(t, store, "1/s burst 10")
		must(t, l, 10)
		time.Sleep(4 * time.Second) // 4 units are there
		ctx, leave := context.WithCancel(t.Context())
		short, gone := context.WithCancel(t.Context())
		for _, w := range []struct {
			ctx  context.Context
			cost int64
		}{{ctx, 5}, {short, 7}, {ctx, 3}} {
			go func() { _ = l.Wait(w.ctx, "k", w.cost) }()
			synctest.Wait()
		}
		gone() // what who has left needed is free again
		synctest.Wait()
		d, err := l.Peek(bg, "k", 1)
		if d.Allowed || d.Remaining != 0 || d.RetryAfter != stint.Wait(5*time.Second) || err != nil { // 9 units, 4 are there
			t.Errorf("a look: %+v, %v", d, err)
		}
		if again, err := l.Take(bg, "k", 1); again != d || err != nil {
			t.Errorf("a take: %+v, %v", again, err)
		}
		if d, err = l.TakeUpTo(bg, "k", 3); d.Allowed || err != nil {
			t.Errorf("a take up to 3: %+v, %v", d, err)
		}
		if d, r, err := l.Reserve(bg, "k", 1, time.Minute); d.Allowed || r != nil || err != nil {
			t.Errorf("a reservation: %+v, %v", d, err)
		}
		if d, err := stint.All(l.Key("k"), l.Key("m")).Take(bg); d.Allowed || d.Denied != 1 || err != nil {
			t.Errorf("a request over two keys: %+v, %v", d, err)
		}
		passed := make([]bool, 2)
		if err := l.AllowEach(bg, []string{"k", "m"}, 1, passed); passed[0] || !passed[1] || err != nil {
			t.Errorf("each of k and m: %v, %v", passed, err)
		}
		if d, err := l.Take(bg, "k", 0); !d.Allowed || err != nil {
			t.Errorf("a cost of 0: %+v, %v", d, err)
		}
		if ok, err := other.Allow(bg, "k"); !ok || err != nil {
			t.Errorf("another limiter of the name: %v, %v", ok, err)
		}
		leave()
		synctest.Wait()
		if d, err := l.Take(bg, "k", 3); !d.Allowed || d.Remaining != 0 || err != nil {
			t.Errorf("once nobody waits: %+v, %v", d, err)
		}
		empty(t, l)
	})
}

// TestWaitBeginsNoBan has neither an attempt of a waiter begin a ban, nor a denial that is
// one for those who wait alone.
func TestWaitBeginsNoBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "1/s burst 3 ban 1h")
		must(t, l, 2)
		done := make(chan error)
		go func() { done <- l.Wait(t.Context(), "k", 3) }()
		synctest.Wait()
		if d, err := l.Take(bg, "k", 1); d.Allowed || d.Banned || err != nil {
			t.Errorf("beside the waiter: %+v, %v", d, err)
		}
		begin := time.Now()
		if err := <-done; err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if d, err := l.Take(bg, "k", 1); d.Allowed || !d.Banned || err != nil {
			t.Errorf("a denial by the state: %+v, %v", d, err)
		}
	})
}

// TestAllInOrder has requests over several keys stand in the lines of all of them.
func TestAllInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		a, b := namedLimiter(t, store, "a", "1/s burst 1"), namedLimiter(t, store, "b", "10/s burst 1")
		must(t, a, 1)
		tr := newTranscript()
		var all sync.WaitGroup
		wait := func(name string, wait func(context.Context) error) {
			all.Go(func() {
				if err := wait(bg); err != nil {
					t.Error(err)
				}
				tr.add("%s", name)
			})
			synctest.Wait()
		}
		wait("both", stint.All(a.Key("k"), b.Key("k")).Wait)
		wait("a alone", func(ctx context.Context) error { return a.Wait(ctx, "k", 1) })
		for i := range 12 { // there is room under b for 9 of them before the first that needs both
			wait(fmt.Sprint("b alone ", i), func(ctx context.Context) error { return b.Wait(ctx, "k", 1) })
		}
		all.Wait()
		var want []string
		for i := range 12 {
			at := time.Duration(i) * 100 * ms
			if i == 10 {
				want = append(want, "1s both")
			}
			if i >= 10 {
				at += 100 * ms
			}
			want = append(want, fmt.Sprintf("%v b alone %d", at, i))
		}
		tr.check(t, strings.Join(append(want, "2s a alone"), "\n"))
		empty(t, a)
		empty(t, b)
	})
}

// TestAllBehind has a request wait behind others at one key alone: those who need what both need wait
// behind it, and those who share only a key that has room for all do not.
func TestAllBehind(t *testing.T) {
	for name, c := range map[string]struct {
		used  [3]int64 // of three keys
		wants [][3]int64
		want  string
	}{
		"leaves room at one key": {[3]int64{5}, [][3]int64{{5, 5, 1}, {0, 5, 1}, {0, 0, 1}}, "1.02s third\n2.5s first\n5s second"},
		"has lost its room":      {[3]int64{2, 5}, [][3]int64{{5, 5}, {2, 1}, {1, 1}}, "2.5s first\n3.5s second\n4s third"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOf(t, "2/s burst 5")
				parts := func(costs [3]int64) (all []stint.Part) {
					for i, n := range costs {
						if n > 0 {
							all = append(all, l.Key(fmt.Sprint(i)).Cost(n))
						}
					}
					return all
				}
				if d, err := stint.All(parts(c.used)...).Take(bg); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				tr := newTranscript()
				var all sync.WaitGroup
				for i, costs := range c.wants {
					all.Go(func() {
						if err := stint.All(parts(costs)...).Wait(bg); err != nil {
							t.Error(err)
						}
						tr.add("%s", []string{"first", "second", "third"}[i])
					})
					synctest.Wait()
					if time.Sleep(10 * ms); i == 0 {
						time.Sleep(time.Second)
					}
				}
				all.Wait()
				tr.check(t, c.want)
			})
		})
	}
}

// TestAllTight: one that leaves room at a key to another, where there never is enough for both, and at a
// limit of all that has none for a moment, holds up those behind it there for a second at most.
func TestAllTight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		user, address, all := namedLimiter(t, store, "user", "1/h"), namedLimiter(t, store, "address", "1/m"), namedLimiter(t, store, "all", "1000/s burst 10")
		if d, err := user.Take(bg, "x", 1); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		wait := func(of, from string) error { return stint.All(user.Key(of), address.Key(from), all.Key("k")).Wait(ctx) }
		go func() { _ = wait("x", "a") }()
		time.Sleep(time.Minute)
		must(t, all, 9)
		go func() { _ = wait("y", "a") }()
		time.Sleep(10 * ms)
		if began, err := time.Now(), wait("z", "b"); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestHoldIsNoAnswer: how long another holds back its room is a guess, for which no deadline is missed.
func TestHoldIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		a, b := namedLimiter(t, store, "a", "10/s burst 5"), namedLimiter(t, store, "b", "10/s burst 1")
		must(t, b, 1)
		go func() { _ = b.Wait(bg, "k", 1) }()
		synctest.Wait()
		go func() { _ = stint.All(a.Key("k"), b.Key("k")).Wait(bg) }()
		synctest.Wait()
		ctx, stop := context.WithTimeout(t.Context(), 700*ms)
		defer stop()
		if began, err := time.Now(), a.Wait(ctx, "k", 5); err != nil || time.Since(began) != 300*ms {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestAllHolds has a request that waits long for one key keep its room under the other for a
// second, and no longer.
func TestAllHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		a, b := namedLimiter(t, store, "a", "1 per 5s burst 1"), namedLimiter(t, store, "b", "10/s burst 1")
		must(t, a, 1)
		tr := newTranscript()
		go func() {
			tr.add("both: %v", stint.All(a.Key("k"), b.Key("k")).Wait(t.Context()))
		}()
		synctest.Wait()
		for range 3 {
			tr.add("b alone: %v", b.Wait(t.Context(), "k", 1))
		}
		time.Sleep(10 * time.Second)
		tr.check(t, "1s b alone: <nil>\n1.1s b alone: <nil>\n1.2s b alone: <nil>\n5s both: <nil>")
	})
}

// TestAllShares lets one caller that needs much, and two limits, wait beside many that need
// little of one of them each, for half an hour: it gets its share of both.
func TestAllShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		a, b := namedLimiter(t, store, "a", "10/s burst 10"), namedLimiter(t, store, "b", "10/s burst 10")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		loop := func(n *int, r *stint.Request) {
			all.Go(func() {
				for r.Wait(ctx) == nil {
					*n++
				}
			})
		}
		var much int
		small := make([]int, 8)
		loop(&much, stint.All(a.Key("k").Cost(8), b.Key("k").Cost(8)))
		for i := range small {
			of := []*stint.Limiter{a, b}[i%2]
			loop(&small[i], stint.All(of.Key("k")))
		}
		all.Wait()
		units := 8 * much
		for i, n := range small {
			if i%2 == 0 {
				units += n
			}
		}
		if units < 17_000 || units > 18_010 || much < 18_000/12/2 {
			t.Errorf("the one that needs 8 passed %d times, the others %v: %d units of a of 18,000", much, small, units)
		}
		empty(t, a)
		empty(t, b)
	})
}

// A countedStore counts the calls of those who wait, and ends a test that makes too many.
type countedStore struct {
	*memstore.Store
	calls atomic.Int64
	stop  context.CancelFunc
}

func (s *countedStore) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if s.calls.Add(1) > 1000 {
		s.stop()
	}
	return s.Store.Decide(ctx, op, layers, cost)
}

func (s *countedStore) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (stint.Decision, stint.ReservationID, error) {
	if s.calls.Add(1) > 1000 {
		s.stop()
	}
	return s.Store.TakeTurn(ctx, layers, cost, ttl, age)
}

// TestAllCalls has many wait for two keys that all share: the calls to the store for each start stay few
// however many wait.
func TestAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countedStore{Store: memstore.New(memstore.Options{}), stop: func() {}}
		a, b := namedLimiter(t, store, "a", "50/s burst 5"), namedLimiter(t, store, "b", "40/s burst 10")
		random := rand.New(rand.NewPCG(3, 4))
		var group sync.WaitGroup
		for range 1500 {
			parts := []stint.Part{a.Key("k").Cost(1 + random.Int64N(5)), b.Key("k").Cost(1 + random.Int64N(5))}
			group.Go(func() { _ = stint.All(parts...).Wait(bg) })
			synctest.Wait()
		}
		if group.Wait(); store.calls.Load() > 1500*45 {
			t.Errorf("%d calls for 1,500 starts", store.calls.Load())
		}
	})
}

// TestWaitYields has some who came first wait for a limit without room, and hold back others
// where they have some: who yields does not ask all the time, and starts at once when they leave.
func TestWaitYields(t *testing.T) {
	for _, keys := range [][]string{{"x"}, {"x", "y"}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			store := &countedStore{Store: memstore.New(memstore.Options{}), stop: stop}
			l, busy := limiterOn(t, store, "1/s burst 10"), limiterOn(t, store, "1/100s")
			if d, err := busy.Take(ctx, "z", 1); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			all := func(cost int64, more ...stint.Part) []stint.Part {
				for _, key := range keys {
					more = append(more, l.Key(key).Cost(cost))
				}
				return more
			}
			first, leave := context.WithCancel(ctx)
			gone := make(chan error, 1)
			go func() { gone <- stint.All(all(10, busy.Key("z"))...).Wait(first) }()
			time.Sleep(30 * time.Second)
			before := store.calls.Load()
			started := make(chan time.Time, 1)
			go func() {
				if err := stint.All(all(1)...).Wait(ctx); err != nil {
					t.Errorf("%v: %v", keys, err)
				}
				started <- time.Now()
			}()
			time.Sleep(10 * time.Second)
			if n := store.calls.Load() - before; n > 50 {
				t.Errorf("%v: who yields for ten seconds makes %d calls", keys, n)
			}
			left := time.Now()
			leave()
			if took := (<-started).Sub(left); took != 0 {
				t.Errorf("%v: starts %v after the one that it yielded to has left", keys, took)
			}
			<-gone
		})
	}
}
