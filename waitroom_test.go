package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// hidden is a store without Watch: it does not announce room, like a store that
// processes share.
type hidden struct{ stint.Store }

// TestHoldEnds: one that has room for a key and waits for another holds its room for a second, also over a
// store that it has to ask again and again.
func TestHoldEnds(t *testing.T) {
	for name, within := range map[string]time.Duration{"memory": time.Second, "hidden": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store stint.Store = memstore.New(memstore.Options{})
				if name == "hidden" {
					store = &hidden{store}
				}
				u, v := made.Limiter(t, store, "u", made.Limit(t, "1/h")), made.Limiter(t, store, "v", made.Limit(t, "1/h"))
				must(t, v, 1)
				ctx, stop := context.WithTimeout(bg, time.Minute)
				defer stop()
				both := make(chan error, 1)
				go func() { both <- stint.All(u.Key("k"), v.Key("k")).Wait(context.WithoutCancel(ctx)) }()
				synctest.Wait()
				began := time.Now()
				if err := u.Wait(ctx, "k", 1); err != nil || time.Since(began) > within {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if err := <-both; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Whatever makes room ends the wait of the first in line, and of those behind it
// that then have room too.
func TestWaitEndsWhenItMay(t *testing.T) {
	hourly := func(l stint.Limit) stint.Limit { return l.WithName("calls") }
	for name, test := range map[string]struct {
		makes func(t *testing.T, store stint.Store, l *stint.Limiter, r *stint.Reservation)
		hides bool // and then it takes up to a second
	}{
		"reset":  {func(_ *testing.T, _ stint.Store, l *stint.Limiter, _ *stint.Reservation) { _ = l.Reset(bg, "k") }, false},
		"refund": {func(_ *testing.T, _ stint.Store, l *stint.Limiter, _ *stint.Reservation) { _, _ = l.Refund(bg, "k", 1) }, false},
		"cancel": {func(_ *testing.T, _ stint.Store, l *stint.Limiter, r *stint.Reservation) { _, _ = r.Cancel(bg) }, false},
		"elsewhere": {func(t *testing.T, store stint.Store, _ *stint.Limiter, _ *stint.Reservation) {
			resetElsewhere(t, store)
		}, false},
		"raised":         {func(t *testing.T, _ stint.Store, l *stint.Limiter, _ *stint.Reservation) { raise(t, l) }, false},
		"hidden: reset":  {func(_ *testing.T, _ stint.Store, l *stint.Limiter, _ *stint.Reservation) { _ = l.Reset(bg, "k") }, false},
		"hidden: cancel": {func(_ *testing.T, _ stint.Store, l *stint.Limiter, r *stint.Reservation) { _, _ = r.Cancel(bg) }, true},
		"hidden: raised": {func(t *testing.T, _ stint.Store, l *stint.Limiter, _ *stint.Reservation) { raise(t, l) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store stint.Store = memstore.New(memstore.Options{})
				if name[0] == 'h' {
					store = &hidden{store}
				}
				l, err := stint.NewLimiter(store, "calls", hourly(stint.PerHour(1)))
				if err != nil {
					t.Fatal(err)
				}
				_, token, err := l.Reserve(bg, "k", 1, 2*time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan time.Time, 1)
				go func() {
					if err := l.Wait(bg, "k", 1); err != nil {
						t.Error(err)
					}
					done <- time.Now()
				}()
				time.Sleep(10*time.Second + time.Millisecond)
				made := time.Now()
				test.makes(t, store, l, token)
				took := (<-done).Sub(made)
				if took > time.Second || took > ms && !test.hides {
					t.Errorf("waited %v longer", took)
				}
				empty(t, l)
			})
		})
	}
}

// resetElsewhere resets "k" by a limiter of its own.
func resetElsewhere(t *testing.T, store stint.Store) {
	other, err := stint.NewLimiter(store, "calls", stint.PerHour(1).WithName("calls"))
	if err == nil {
		err = other.Reset(bg, "k")
	}
	if err != nil {
		t.Error(err)
	}
}

// raise changes the limit to one that lets pass at once.
func raise(t *testing.T, l *stint.Limiter) {
	if err := l.SetLimits(stint.PerSecond(1_000_000).WithBurst(10).WithName("calls")); err != nil {
		t.Error(err)
	}
}

// Whatever makes room under a leaky_queue lets all that wait start earlier, in order,
// and newcomers behind them: 61 wait under one a second, and from 1.5 s on another
// comes every 100 ms and has 5 s.
func TestWaitMovesUpWhenRoomIsMade(t *testing.T) {
	for name, test := range map[string]struct {
		makes func(l *stint.Limiter) error
		hides bool          // the store does not say when it makes room
		last  time.Duration // the last of the 61 starts by then
		pass  int           // of the 100 newcomers, at least
	}{
		"faster queue":         {change("100/s leaky_queue burst 60"), false, 3500 * ms, 100},
		"bucket":               {change("100/s burst 60"), false, 3500 * ms, 100},
		"reset":                {func(l *stint.Limiter) error { return l.Reset(bg, "k") }, false, 59500 * ms, 0},
		"refund":               {func(l *stint.Limiter) error { _, err := l.Refund(bg, "k", 30); return err }, false, 59500 * ms, 0},
		"hidden: faster queue": {change("100/s leaky_queue burst 60"), true, 4500 * ms, 90},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var store stint.Store = memstore.New(memstore.Options{})
				if test.hides {
					store = &hidden{store}
				}
				l := limiterOn(t, store, "1/s leaky_queue burst 60")
				began := time.Now()
				var mu sync.Mutex
				var starts []time.Duration
				order, passed := []int{}, 0
				var all sync.WaitGroup
				for i := range 61 {
					all.Go(func() {
						if err := l.Wait(bg, "k", 1); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						starts, order = append(starts, time.Since(began)), append(order, i)
					})
					synctest.Wait()
				}
				time.Sleep(1500 * ms)
				if err := test.makes(l); err != nil {
					t.Error(err)
				}
				for range 100 {
					all.Go(func() {
						ctx, stop := context.WithTimeout(bg, 5*time.Second)
						defer stop()
						if l.Wait(ctx, "k", 1) == nil {
							mu.Lock()
							defer mu.Unlock()
							passed++
						}
					})
					time.Sleep(100 * ms)
				}
				all.Wait()
				if last := starts[60]; last > test.last || passed < test.pass {
					t.Errorf("the last of those that waited starts at %v, want %v; %d of 100 newcomers pass, want %d", last, test.last, passed, test.pass)
				}
				if strings.HasSuffix(name, "queue") && !slices.IsSorted(order) {
					t.Errorf("order %v", order)
				}
				empty(t, l)
			})
		})
	}
}

func change(limit string) func(*stint.Limiter) error {
	return func(l *stint.Limiter) error {
		parsed, err := stint.Parse(limit)
		if err != nil {
			return err
		}
		return l.SetLimits(parsed)
	}
}

// One waiter under a leaky_queue, and nobody else comes: it starts at once.
func TestWaitAloneMovesUp(t *testing.T) {
	for name, makes := range map[string]func(*stint.Limiter) error{
		"reset":   func(l *stint.Limiter) error { return l.Reset(bg, "k") },
		"refund":  func(l *stint.Limiter) error { _, err := l.Refund(bg, "k", 9); return err },
		"changed": change("100/s leaky_queue burst 10"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOf(t, "1/h leaky_queue burst 10")
				must(t, l, 1)
				done := make(chan error, 1)
				go func() { done <- l.Wait(bg, "k", 1) }()
				go func() { _, err := l.WaitReserve(bg, "k", 1, time.Minute); done <- err }()
				synctest.Wait()
				began := time.Now()
				if err := makes(l); err != nil {
					t.Error(err)
				}
				first, most := <-done, 20*ms
				if took := time.Since(began); first != nil || took > most {
					t.Errorf("starts %v later, %v; want within %v", took, first, most)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				empty(t, l)
			})
		})
	}
}

// Limits that are changed hold for those who wait: under what has become a
// leaky_queue, who gives up frees the place, whether they came before the change
// or after.
func TestWaitUnderChangedLimits(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, "1/1h")
			must(t, l, 1)
			change := func() {
				if err := l.SetLimits(parse(t, "1/s burst 5 leaky_queue")); err != nil {
					t.Error(err)
				}
			}
			if before {
				time.AfterFunc(time.Second, change)
			} else {
				time.Sleep(time.Hour)
				change()
				must(t, l, 1)
			}
			gone, leave := context.WithCancel(bg)
			time.AfterFunc(1100*ms, leave)
			begun, others := time.Now(), sync.WaitGroup{}
			others.Go(func() { // is charged before
				if err := l.Wait(bg, "k", 1); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			if err := l.Wait(gone, "k", 1); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			d, err := l.Peek(bg, "k", 1)
			if next := time.Since(begun) + d.Delay; err != nil || next > 3*time.Second {
				t.Errorf("changed before %t: the next starts at %v, %v; want the place that was given up, before 3s", before, next, err)
			}
			others.Wait()
			empty(t, l)
		})
	}
}

// ways are how a cost can wait for the key "k" of a limiter: by itself, or as a part of a request,
// also beside a key with room.
func ways(t *testing.T, store stint.Store, l *stint.Limiter) []func(ctx context.Context, cost int64) error {
	t.Helper()
	free := made.Limiter(t, store, "free", made.Limit(t, "1000000/s"))
	return []func(ctx context.Context, cost int64) error{
		func(ctx context.Context, cost int64) error { return l.Wait(ctx, "k", cost) },
		func(ctx context.Context, cost int64) error { return stint.All(l.Key("k").Cost(cost)).Wait(ctx) },
		func(ctx context.Context, cost int64) error {
			return stint.All(free.Key("k"), l.Key("k").Cost(cost)).Wait(ctx)
		},
	}
}

// A deadline counts those ahead under every algorithm: of eleven that wait under one
// a second, one that has 2.5 s fails at once, and one that has enough passes. One that can never
// pass fails at once, too.
func TestWaitDeadlineCountsThoseAhead(t *testing.T) {
	for _, limit := range []string{
		"1/s burst 1", "1/s fixed_window", "1/s sliding_log", "1/s sliding_buckets", "1/s sliding_counter",
		"1/s token_bucket_interval", "1/s leaky_queue burst 1", "1/s leaky_queue burst 5", "1/s leaky_queue burst 40",
		"1/s sliding_log; 2/s fixed_window", "3/s sliding_log", "3/s fixed_window",
	} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				l := limiterOn(t, store, split(limit)...)
				for i, wait := range ways(t, store, l) {
					var first time.Duration // that the last in line takes
					synctestPass(t, l, func() {
						began := time.Now()
						if err := wait(bg, 1); err != nil {
							t.Error(err)
						}
						first = time.Since(began)
					})
					fails := func(within time.Duration, cost int64) {
						synctestPass(t, l, func() {
							soon, stop := bg, func() {}
							if within > 0 {
								soon, stop = context.WithTimeout(bg, within)
							}
							defer stop()
							began := time.Now()
							var early *stint.WaitError
							if err := wait(soon, cost); !errors.As(err, &early) || time.Since(began) != 0 {
								t.Errorf("way %d: cost %d after %v: %v", i, cost, time.Since(began), err)
							}
						})
					}
					if l.Limits()[0].Count() == 1 {
						fails(2500*ms, 1)
					}
					fails(0, 50)
					synctestPass(t, l, func() {
						enough, stop := context.WithTimeout(bg, first+1)
						defer stop()
						if err := wait(enough, 1); err != nil {
							t.Errorf("way %d: with %v: %v", i, first, err)
						}
					})
				}
				empty(t, l)
			})
		})
	}
}

// synctestPass runs last behind ten that wait, from an even second and a fresh
// key.
func synctestPass(t *testing.T, l *stint.Limiter, last func()) {
	t.Helper()
	time.Sleep(time.Until(time.Now().Truncate(100 * time.Second).Add(200 * time.Second)))
	if err := l.Reset(bg, "k"); err != nil {
		t.Fatal(err)
	}
	must(t, l, l.Limits()[0].Count())
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { _ = l.Wait(bg, "k", 1) })
		synctest.Wait()
	}
	all.Go(last)
	all.Wait()
}

// No deadline fails early that could have been met: random costs wait without
// one, then again with the time that they took, from any moment of a window on, behind a ban too.
func TestWaitDeadlineIsCertain(t *testing.T) {
	for _, limit := range []string{
		"3/s burst 4", "3/s fixed_window", "4/s sliding_log", "4/s sliding_buckets parts 4", "4/s sliding_counter",
		"4/s sliding_counter relaxed", "3/2s token_bucket_interval", "3/s leaky_queue burst 3", "4/s sliding_log; 3/s fixed_window", "5/day in UTC",
		"4/s sliding_counter; 3/s burst 5", "3/s fixed_window ban 1ms", "4/s sliding_counter ban 1ms", "3/2s token_bucket_interval ban 1ms", "3/s leaky_queue burst 3 ban 1ms",
	} {
		t.Run(limit, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New(memstore.Options{})
					l := limiterOn(t, store, split(limit)...)
					random := rand.New(rand.NewPCG(seed, 3))
					wait := ways(t, store, l)[seed%3]
					most := min(l.Limits()[0].Capacity(), 3)
					costs, took := make([]int64, 12), make([]time.Duration, 12)
					for i := range costs {
						costs[i] = 1 + random.Int64N(most)
					}
					began, later, blocked := random.Int64N(2000), random.Int64N(1500), random.Int64N(3000)
					for round := range 2 {
						time.Sleep(time.Until(time.Now().Truncate(240 * time.Hour).Add(480*time.Hour + time.Duration(began)*ms)))
						if err := l.Reset(bg, "k"); err != nil {
							t.Fatal(err)
						}
						must(t, l, 2)
						time.Sleep(time.Duration(later) * ms)
						if l.Limits()[0].Ban() > 0 {
							if err := l.Block(bg, "k", time.Duration(blocked)*ms); err != nil {
								t.Fatal(err)
							}
						}
						var all sync.WaitGroup
						for i, cost := range costs {
							ctx, stop := bg, func() {}
							if round == 1 {
								ctx, stop = context.WithTimeout(bg, took[i]+1) // others may pass at the same instant
							}
							all.Go(func() {
								defer stop()
								began := time.Now()
								if err := wait(ctx, cost); err != nil {
									t.Errorf("seed %d: costs %v: the one at %d, with %v: %v", seed, costs, i, took[i], err)
								}
								took[i] = time.Since(began)
							})
							synctest.Wait()
						}
						all.Wait()
					}
				})
			}
		})
	}
}

// Thousands that give up at once leave nothing.
func TestWaitThousandsGiveUp(t *testing.T) {
	for _, limit := range []string{"1000/s leaky_queue burst 30_000", "1000/s burst 1", "1/h leaky_queue burst 100"} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOf(t, limit)
				must(t, l, 1)
				before, _ := l.Peek(bg, "k", 1)
				ctx, cancel := context.WithCancel(bg)
				var all sync.WaitGroup
				for range 20_000 {
					all.Go(func() { _ = l.Wait(ctx, "k", 1) })
				}
				synctest.Wait()
				cancel()
				all.Wait()
				if after, _ := l.Peek(bg, "k", 1); after != before {
					t.Errorf("before %+v, after %+v", before, after)
				}
				empty(t, l)
			})
		})
	}
}

// What passes at once allocates nothing.
func TestWaitAllocations(t *testing.T) {
	for limit, most := range map[string]float64{"1_000_000/s": 0, "1_000_000_000/s leaky_queue": 0, "1_000_000/s sliding_buckets": 0, "1_000_000/s; 1_000_000/m": 0} {
		l := limiterOf(t, split(limit)...)
		must(t, l, 1)
		if n := testing.AllocsPerRun(100, func() {
			if err := l.Wait(bg, "k", 1); err != nil {
				t.Error(err)
			}
		}); n > most {
			t.Errorf("%s: %v allocations", limit, n)
		}
	}
}

// 100,000 waiters hold at most 110 MB beside their goroutines.
func TestWaitersRoom(t *testing.T) {
	const n = 20_000
	heap := func(wait func(ctx context.Context), waits func() bool) uint64 {
		ctx, stop := context.WithCancel(bg)
		var all sync.WaitGroup
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range n {
			all.Go(func() { wait(ctx) })
		}
		for !waits() {
			time.Sleep(ms)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		stop()
		all.Wait()
		return max(after.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
	}
	var begun atomic.Int64
	heap(func(ctx context.Context) { // the runtime keeps what goroutines need
		begun.Add(1)
		<-ctx.Done()
	}, func() bool { return begun.Load() == n })
	for _, limit := range []string{"1/h burst 1", "1/h leaky_queue burst 200_000", "1/h sliding_log"} {
		l := limiterOn(t, memstore.New(memstore.Options{MaxReservations: 2 * n}), limit)
		must(t, l, 1)
		room := heap(func(ctx context.Context) { _ = l.Wait(ctx, "k", 1) }, func() bool { waiters, _ := l.Waiting(); return waiters == n })
		if t.Logf("%s: %d bytes a waiter", limit, room/n); room > n*1100 {
			t.Errorf("%s: %d bytes a waiter", limit, room/n)
		}
	}
}

// Reservations wait in the line with everyone else, and what they give back
// wakes it.
func TestWaitReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "100/m burst 10")
		tr := newTranscript()
		var all sync.WaitGroup
		call := func(name string, used int64, lasts time.Duration) {
			all.Go(func() {
				r, err := l.WaitReserve(bg, "k", 8, time.Minute)
				tr.add("%s starts %v", name, err)
				time.Sleep(lasts)
				if _, err := r.Settle(bg, used); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		call("a", 2, time.Second)
		call("b", 8, time.Second)
		all.Go(func() { tr.add("c passes %v", l.Wait(bg, "k", 1)) })
		synctest.Wait()
		all.Wait()
		tr.check(t, `0s a starts <nil>
			1s b starts <nil>
			1s c passes <nil>`)
		for _, err := range []error{
			second(l.WaitReserve(bg, "k", 11, time.Minute)), second(l.WaitReserve(bg, "k", 1, 0)), second(l.WaitReserve(bg, "k", -1, time.Minute)),
		} {
			if err == nil {
				t.Error("no error")
			}
		}
		empty(t, l)
	})
}

// What waits under a queue is charged: a denial beside it says when its cost passes.
func TestQueueRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "1/1s leaky_queue burst 8")
		var all sync.WaitGroup
		for _, cost := range []int64{1, 4} {
			all.Go(func() {
				if err := l.Wait(bg, "k", cost); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if d, err := l.Take(bg, "k", 8); err != nil || d.Allowed || d.RetryAfter != stint.Wait(4*time.Second) {
			t.Errorf("%+v, %v", d, err)
		}
		all.Wait()
	})
}

// What waited to be reserved excuses denials, as what did not wait.
func TestWaitReserveExcuses(t *testing.T) {
	l := limiterOf(t, "1/h ban 1h")
	if _, err := l.WaitReserve(bg, "k", 1, time.Minute); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Take(bg, "k", 1); err != nil || d.Allowed || d.Banned || d.RetryAfter > stint.Wait(time.Second) {
		t.Errorf("%+v, %v; want a denial that bans nobody", d, err)
	}
}

func second(_ *stint.Reservation, err error) error { return err }

// TestWaitHistories has callers of a leaky_queue wait, reserve, give up, settle
// and reset nothing, at random. Judged from the starts alone: no two within the
// time of one unit.
func TestWaitHistories(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			burst := []string{"0", "2", "9", "200"}[random.IntN(4)]
			l := limiterOf(t, "1/s leaky_queue burst "+burst)
			reserves := random.IntN(2) == 0
			var mu sync.Mutex
			var starts []time.Time
			var all sync.WaitGroup
			for range 120 {
				ctx, leave := context.WithTimeout(bg, time.Duration(random.Int64N(int64(20*time.Second))))
				own, lasts := reserves && random.IntN(2) == 0, time.Duration(random.Int64N(int64(5*time.Second)))
				all.Go(func() {
					defer leave()
					var r *stint.Reservation
					var err error
					if own {
						r, err = l.WaitReserve(ctx, "k", 1, time.Minute)
					} else {
						err = l.Wait(ctx, "k", 1)
					}
					if err != nil {
						return
					}
					mu.Lock()
					starts = append(starts, time.Now())
					mu.Unlock()
					if own {
						time.Sleep(lasts)
						if _, err := r.Settle(bg, 1); err != nil {
							t.Error(err)
						}
					}
				})
				time.Sleep(time.Duration(random.Int64N(int64(1500 * ms))))
			}
			all.Wait()
			slices.SortFunc(starts, time.Time.Compare)
			for i := 1; i < len(starts); i++ {
				if gap := starts[i].Sub(starts[i-1]); gap < time.Second {
					t.Fatalf("seed %d, burst %s: start %d, the next after %v", seed, burst, i-1, gap)
				}
			}
			empty(t, l)
		})
	}
}

// TestWaitHistoriesWithRoom is a history in which others also reset, refund and set
// limits. Everybody starts or gives up by its deadline, and nobody is left.
func TestWaitHistoriesWithRoom(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 6))
			var store stint.Store = memstore.New(memstore.Options{})
			if random.IntN(2) == 0 {
				store = &hidden{store}
			}
			limits := []string{"1/s leaky_queue burst 20", "10/s leaky_queue burst 20", "1/s leaky_queue burst 5", "3/s burst 9"}
			l := limiterOn(t, store, limits[0])
			costs, reserves := 1+random.Int64N(3), random.IntN(2) == 0
			var all sync.WaitGroup
			for range 80 {
				within := time.Duration(random.Int64N(int64(20 * time.Second)))
				ctx, leave := context.WithTimeout(bg, within)
				own, cost := reserves && random.IntN(2) == 0, 1+random.Int64N(costs)
				all.Go(func() {
					defer leave()
					began := time.Now()
					var r *stint.Reservation
					var err error
					if own {
						r, err = l.WaitReserve(ctx, "k", cost, time.Minute)
					} else {
						err = l.Wait(ctx, "k", cost)
					}
					if took := time.Since(began); took > within {
						t.Errorf("seed %d: %v after %v, with %v to wait", seed, err, took, within)
					}
					if err == nil && own {
						_, _ = r.Settle(bg, cost) // after a reset it is not known
					}
				})
				switch random.IntN(20) {
				case 0:
					_ = l.Reset(bg, "k")
				case 1:
					_, _ = l.Refund(bg, "k", 1+random.Int64N(9))
				case 2:
					if err := change(limits[random.IntN(len(limits))])(l); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Duration(random.Int64N(int64(1500 * ms))))
			}
			all.Wait()
			empty(t, l)
		})
	}
}

// TestQueueGivenUp: what several give up under a leaky_queue, one after the other, is free for one who has
// no room until then.
func TestQueueGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "1/s leaky_queue burst 4")
		var all sync.WaitGroup
		began := time.Now()
		wait := func(cost int64, comes, leaves, starts time.Duration) {
			all.Go(func() {
				time.Sleep(comes * ms)
				ctx, stop := context.WithCancel(bg)
				defer stop()
				time.AfterFunc((leaves-comes)*ms, stop)
				if err := l.Wait(ctx, "k", cost); (err == nil) != (starts > 0) || err == nil && time.Since(began) != starts*ms {
					t.Errorf("cost %d: %v after %v, want a start after %v ms", cost, err, time.Since(began), int64(starts))
				}
			})
		}
		must(t, l, 1)
		wait(1, 1, 9000, 1000)
		wait(1, 500, 1500, 0)
		wait(2, 600, 1600, 0)
		wait(3, 700, 9000, 2000)
		all.Wait()
		empty(t, l)
	})
}

// TestWaitDeadlineInWhatIsLeft: a deadline is not refused that is met in what is left of the place of one who
// gave up.
func TestWaitDeadlineInWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "1/10s leaky_queue burst 20")
		ctx, leave := context.WithCancel(bg)
		began := time.Now()
		var all sync.WaitGroup
		wait := func(ctx context.Context, cost int64, at time.Duration) {
			all.Go(func() {
				if err := l.Wait(ctx, "k", cost); ctx.Err() == nil && (err != nil || time.Since(began) != at) {
					t.Errorf("cost %d: %v after %v, want %v", cost, err, time.Since(began), at)
				}
			})
			synctest.Wait()
		}
		wait(bg, 1, 0)
		wait(ctx, 3, 0)
		wait(bg, 1, 10*time.Second)
		wait(bg, 1, 20*time.Second)
		leave()
		synctest.Wait()
		until, end := context.WithTimeout(bg, 31*time.Second)
		defer end()
		wait(until, 1, 30*time.Second)
		all.Wait()
	})
}
