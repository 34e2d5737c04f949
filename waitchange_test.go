package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// TestWaitChange raises and lowers the rate of a bucket while many wait. The model is the
// definition: what is in use drains at the rate in force, and a waiter starts when its unit
// has room, behind those before it.
func TestWaitChange(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 8))
			burst := 1 + random.Int64N(5)
			rates, changes := []int64{10}, []float64{0}
			for at := 0.0; len(rates) < 8; rates = append(rates, 1+random.Int64N(40)) {
				at += 0.1 + 3*random.Float64()
				changes = append(changes, at)
			}
			of := func(rate int64) stint.Limit { return stint.PerSecond(rate).WithBurst(burst).WithName("l") }
			l := made.Limiter(t, memstore.New(memstore.Options{}), "test", of(rates[0]))
			began := time.Now()
			for i := range rates[1:] {
				time.AfterFunc(time.Duration(changes[i+1]*1e9), func() {
					if err := l.SetLimits(of(rates[i+1])); err != nil {
						t.Error(err)
					}
				})
			}
			starts := make([]float64, 120)
			var all sync.WaitGroup
			for i := range starts {
				all.Go(func() {
					if err := l.Wait(bg, "k", 1); err != nil {
						t.Error(err)
					}
					starts[i] = time.Since(began).Seconds()
				})
				synctest.Wait()
			}
			all.Wait()
			used, now, k := 0.0, 0.0, 0
			for i, got := range starts {
				for used+1 > float64(burst)+1e-9 {
					end := now + (used+1-float64(burst))/float64(rates[k])
					if k+1 < len(rates) && end > changes[k+1] {
						used -= (changes[k+1] - now) * float64(rates[k])
						now, k = changes[k+1], k+1
						continue
					}
					used, now = float64(burst)-1, end
				}
				if used++; math.Abs(got-now) > 0.01*now+1e-6 {
					t.Fatalf("seed %d: waiter %d starts at %.6f s, the definition says %.6f", seed, i, got, now)
				}
			}
			empty(t, l)
		})
	}
}

var errDown = fmt.Errorf("down: %w", context.DeadlineExceeded) // as of a call that took too long

// A failing store fails those who wait, when told.
type failing struct {
	*memstore.Store
	fails atomic.Bool
}

func (s *failing) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (stint.Decision, stint.ReservationID, error) {
	if s.fails.Load() {
		return stint.Decision{}, "", errDown
	}
	return s.Store.TakeTurn(ctx, layers, cost, ttl, age)
}

// TestWaitStoreFails lets a store fail for some seconds while many wait, of whom some leave
// from the front, the middle and the end: everybody hears what became of it, what starts is
// within the limit, and who comes when the store is back waits as ever.
func TestWaitStoreFails(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, l, other *stint.Limiter) error{
		"Wait": func(ctx context.Context, l, _ *stint.Limiter) error { return l.Wait(ctx, "k", 1) },
		"WaitReserve": func(ctx context.Context, l, _ *stint.Limiter) error {
			_, err := l.WaitReserve(ctx, "k", 1, time.Minute)
			return err
		},
		"All": func(ctx context.Context, l, other *stint.Limiter) error {
			return stint.All(l.Key("k"), other.Key("k")).Wait(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &failing{Store: memstore.New(memstore.Options{})}
				l, other := namedLimiter(t, s, "l", "1/s burst 1"), namedLimiter(t, s, "other", "2/s burst 1")
				var started, failed, left atomic.Int64
				var all sync.WaitGroup
				come := func(n int) {
					for i := range n {
						ctx, leave := context.WithCancel(bg)
						if i%3 == 1 {
							time.AfterFunc(time.Duration(i)*200*ms, leave)
						}
						all.Go(func() {
							defer leave()
							switch err := wait(ctx, l, other); {
							case errors.Is(err, errDown):
								failed.Add(1)
							case errors.Is(err, context.Canceled):
								left.Add(1)
							case err != nil:
								t.Error(err)
							default:
								started.Add(1)
							}
						})
						synctest.Wait()
					}
				}
				come(30)
				time.Sleep(5500 * ms)
				s.fails.Store(true)
				time.Sleep(4 * time.Second)
				s.fails.Store(false)
				come(6)
				all.Wait()
				if n := started.Load() + failed.Load() + left.Load(); n != 36 || started.Load() != 6+4 || failed.Load() == 0 {
					t.Errorf("%d started, %d failed, %d left", started.Load(), failed.Load(), left.Load())
				}
				empty(t, l)
				empty(t, other)
			})
		})
	}
}

// TestAcquireInOrder lets requests wait for a place and for the bucket beside it: they start
// in order, when both have room; no newcomer passes them; and who leaves holds up nobody.
func TestAcquireInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, "1 in flight", "10/s burst 1")
		tr := newTranscript()
		_, end, err := l.Acquire(bg, "k")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var leave []func()
		for i := range 6 {
			ctx, cancel := context.WithCancel(bg)
			leave = append(leave, cancel)
			all.Go(func() {
				d, release, err := l.AcquireN(ctx, "k", 1, time.Minute)
				tr.add("%d %v %v", i, d.Allowed, err)
				time.Sleep(50 * ms)
				release()
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		for _, i := range []int{0, 3, 5} {
			leave[i]()
		}
		synctest.Wait()
		end()
		if d, _, err := l.Acquire(bg, "k"); d.Allowed || err != nil {
			t.Errorf("a newcomer: %+v, %v", d, err)
		}
		all.Wait()
		tr.check(t, `1s 0 false context canceled
			1s 3 false context canceled
			1s 5 false context canceled
			1s 1 true <nil>
			1.1s 2 true <nil>
			1.2s 4 true <nil>`)
		empty(t, l)
	})
}

// TestWaitLowerFaster: after a change, a waiter starts as soon as one that asks all the time, and none that
// comes is refused that could start by its deadline.
func TestWaitLowerFaster(t *testing.T) {
	for _, c := range []struct {
		from, to string
		used     int64
		before   int // how many wait when the limit changes
		costs    []int64
		starts   []time.Duration
	}{
		{"100/1h", "36000/1h burst 20", 100, 0, []int64{20}, []time.Duration{48*time.Minute + 2*time.Second}},
		{"100/1h", "36000/1h burst 20", 100, 0, []int64{5, 1}, []time.Duration{48*time.Minute + 500*ms, 48*time.Minute + 600*ms}},
		{"1/1s burst 6", "10/1s burst 5", 6, 0, []int64{1, 3, 1}, []time.Duration{1100 * ms, 1400 * ms, 1500 * ms}},
		{"10/1s leaky_queue burst 3", "1/1s leaky_queue burst 3", 1, 1, []int64{3, 3, 3, 2}, []time.Duration{100 * ms, 1300 * ms, 4300 * ms, 7300 * ms}},
	} {
		for _, short := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				to, _ := stint.Parse(c.to)
				l := limiterOf(t, c.from)
				must(t, l, c.used)
				began := time.Now()
				var all sync.WaitGroup
				for i, cost := range c.costs {
					if i == c.before {
						if err := l.SetLimits(to); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
					}
					all.Go(func() {
						ctx, stop := context.WithTimeout(bg, time.Hour)
						if short && i >= c.before {
							ctx, stop = context.WithTimeout(bg, c.starts[i]+1)
						}
						defer stop()
						if err := l.Wait(ctx, "k", cost); err != nil || time.Since(began) != c.starts[i] {
							t.Errorf("%s to %s, cost %d: %v after %v, want a start after %v", c.from, c.to, cost, err, time.Since(began), c.starts[i])
						}
					})
					synctest.Wait()
				}
				all.Wait()
			})
		}
	}
}

// TestQueueRaised: those who have a start under a leaky_queue start earlier under a faster one, as soon as its
// pace says, and nobody who comes later starts before them.
func TestQueueRaised(t *testing.T) {
	for _, to := range []string{"3/1s leaky_queue burst 5", "10/1s leaky_queue burst 5", "30/1s leaky_queue burst 20"} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, "1/1s leaky_queue burst 20")
			var all sync.WaitGroup
			var mu sync.Mutex
			var order []int
			for i, cost := range []int64{2, 3, 3, 2, 3, 3, 1, 3} {
				if i == 4 {
					if limit, err := stint.Parse(to); err != nil || l.SetLimits(limit) != nil {
						t.Fatal(err)
					}
				}
				all.Go(func() {
					if err := l.Wait(bg, "k", cost); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				})
				synctest.Wait()
			}
			all.Wait()
			if !slices.IsSorted(order) {
				t.Errorf("to %s: they start in the order %d", to, order)
			}
		})
	}
	for _, burst := range []int64{5, 6, 20} { // the queue and who waits beside it is full, nearly, or not
		for name, wait := range map[string]func(l *stint.Limiter) error{
			"Wait": func(l *stint.Limiter) error { return l.Wait(bg, "k", 1) },
			"All":  func(l *stint.Limiter) error { return stint.All(l.Key("k")).Wait(bg) },
		} {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOf(t, fmt.Sprintf("1/1s leaky_queue burst %d", burst))
				var all sync.WaitGroup
				began, starts := time.Now(), make([]time.Duration, 9)
				for i := range starts {
					all.Go(func() {
						if err := wait(l); err != nil {
							t.Error(err)
						}
						starts[i] = time.Since(began)
					})
					synctest.Wait()
				}
				time.Sleep(200 * ms)
				if limit, err := stint.Parse(fmt.Sprintf("2/1s leaky_queue burst %d", burst)); err != nil || l.SetLimits(limit) != nil {
					t.Fatal(err)
				}
				all.Wait()
				for i, got := range starts[1:] {
					if want := 600*ms + time.Duration(i)*500*ms; (got - want).Abs() > want/100 {
						t.Errorf("%s, burst %d: waiter %d starts after %v, want %v", name, burst, i+1, got, want)
					}
				}
			})
		}
	}
}

// TestDebtAfterChange: what is owed from before a change drains by the numbers from before; no deadline is
// refused meanwhile that can be met.
func TestDebtAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "10/100s burst 3")
		_, r, err := l.Reserve(bg, "k", 3, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Settle(bg, 6); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if limit, err := stint.Parse("10000/100s burst 1"); err != nil || l.SetLimits(limit) != nil {
			t.Fatal(err)
		}
		time.Sleep(31 * time.Second)
		ctx, stop := context.WithDeadline(bg, began.Add(56*time.Second))
		defer stop()
		if err := l.Wait(ctx, "k", 1); err != nil || time.Since(began) > 52*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestQueueLowered: those who have a start under a leaky_queue keep the pace at which they were charged, and
// who gives up lets nobody start above it.
func TestQueueLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "600/1m leaky_queue burst 50")
		ctx, leave := context.WithCancel(bg)
		began := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		var starts []time.Duration
		come := func(ctx context.Context, cost int64) {
			all.Go(func() {
				if l.Wait(ctx, "k", cost) == nil {
					mu.Lock()
					defer mu.Unlock()
					starts = append(starts, time.Since(began))
				}
			})
			synctest.Wait()
		}
		come(bg, 1)
		come(ctx, 1)
		come(bg, 2)
		for range 5 {
			come(bg, 1)
		}
		time.Sleep(50 * ms)
		if limit, err := stint.Parse("6/1m leaky_queue burst 50"); err != nil || l.SetLimits(limit) != nil {
			t.Fatal(err)
		}
		come(bg, 1)
		leave()
		all.Wait()
		if want := []time.Duration{0, 100 * ms, 300 * ms, 400 * ms, 500 * ms, 600 * ms, 700 * ms, 800 * ms}; !slices.Equal(starts, want) {
			t.Errorf("starts at %v, want %v", starts, want)
		}
	})
}

// TestQueueAroundPromise: a waiter that moves up takes no time from a delay that was returned, however times
// are rounded.
func TestQueueAroundPromise(t *testing.T) {
	for _, count := range []int64{3, 4, 6, 9} {
		synctest.Test(t, func(t *testing.T) {
			l, unit := limiterOf(t, fmt.Sprintf("%d/s leaky_queue burst 14", count)), time.Second/time.Duration(count)
			ctx, leave := context.WithCancel(bg)
			began := time.Now()
			var all sync.WaitGroup
			wait := func(ctx context.Context, cost int64) {
				all.Go(func() {
					if err := l.Wait(ctx, "k", cost); err == nil && cost == 2 && time.Since(began) < 8*unit-10 {
						t.Errorf("%d/s: starts after %v", count, time.Since(began))
					}
				})
				synctest.Wait()
			}
			wait(bg, 6)
			wait(ctx, 1)
			must(t, l, 1) // from 7 units on
			wait(bg, 2)
			leave()
			all.Wait()
		})
	}
}

// TestQueueRaisedBeside: that many others are woken by the change makes no difference.
func TestQueueRaisedBeside(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, "1/1s leaky_queue burst 5")
			ctx, stop := context.WithCancel(bg)
			var others, all sync.WaitGroup
			for i := range 300 {
				key := fmt.Sprint(i)
				if _, err := l.Take(bg, key, 6); err != nil {
					t.Fatal(err)
				}
				others.Go(func() { _ = l.Wait(ctx, key, 1) })
			}
			synctest.Wait()
			began, starts := time.Now(), make([]time.Duration, 9)
			for i := range starts {
				all.Go(func() {
					_ = l.Wait(bg, "k", 1)
					starts[i] = time.Since(began)
				})
				synctest.Wait()
			}
			time.Sleep(200 * ms)
			if limit, err := stint.Parse("2/1s leaky_queue burst 5"); err != nil || l.SetLimits(limit) != nil {
				t.Fatal(err)
			}
			all.Wait()
			stop()
			others.Wait()
			for i, got := range starts[1:] {
				if want := 600*ms + time.Duration(i)*500*ms; (got - want).Abs() > want/100 {
					t.Fatalf("starts after %v", starts)
				}
			}
		})
	}
}

// TestQueueRaisedWithoutRoom: a raise reaches a waiter that has no room.
func TestQueueRaisedWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "1/1m leaky_queue burst 9")
		must(t, l, 10)
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			if err := l.Wait(bg, "k", 10); err != nil || time.Since(began) > 7*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
		time.Sleep(500 * ms)
		if limit, err := stint.Parse("100/1m leaky_queue burst 9"); err != nil || l.SetLimits(limit) != nil {
			t.Fatal(err)
		}
		all.Wait()
	})
}

// TestQueueKeepsItsPlaces: a faster pace moves nobody back whose place would give nothing back: behind numbers
// that have come into force in between, and where the limits cannot be set.
func TestQueueKeepsItsPlaces(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, "10/1s leaky_queue burst 20")
			began, starts := time.Now(), make([]time.Duration, 10)
			var all sync.WaitGroup
			for i := range starts {
				all.Go(func() {
					_ = l.Wait(bg, "k", 1)
					starts[i] = time.Since(began)
				})
				synctest.Wait()
			}
			if fails {
				if l.SetLimits(stint.PerSecond(100).WithAlgorithm(stint.LeakyQueue).WithBurst(-5)) == nil {
					t.Error("a burst of -5 was taken")
				}
			} else {
				for _, text := range []string{"9/1s leaky_queue burst 20", "10/1s leaky_queue burst 20"} {
					if limit, err := stint.Parse(text); err != nil || l.SetLimits(limit) != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					all.Go(func() { _ = l.Wait(bg, "k", 1) })
					synctest.Wait()
				}
			}
			all.Wait()
			for i, got := range starts {
				if want := time.Duration(i) * 100 * ms; got != want {
					t.Fatalf("fails %v: starts after %v", fails, starts)
				}
			}
		})
	}
}

// TestQueueRaisedAroundPromises: a faster pace lets nobody start later than without it, wherever in the queue
// others have been told delays or a larger burst has let some in.
func TestQueueRaisedAroundPromises(t *testing.T) {
	for seed := range uint64(400) {
		var starts [2][30]time.Duration
		for raised := range starts {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 7))
				rate, burst := 1+random.Int64N(30), 3+random.Int64N(40)
				l := limiterOf(t, fmt.Sprintf("%d/10s leaky_queue burst %d", rate, burst))
				faster := rate + 1 + random.Int64N(1+rate*(1+random.Int64N(30)))
				began, larger, change := time.Now(), random.IntN(60), random.IntN(30)
				set := func(rate int64) {
					if limit, err := stint.Parse(fmt.Sprintf("%d/10s leaky_queue burst %d", rate, burst)); err != nil || l.SetLimits(limit) != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				var waits sync.WaitGroup
				for i := range starts[raised] {
					cost, takes := 1+random.Int64N(1+random.Int64N(3)), random.IntN(4) == 0
					if i == larger { // lets those without a place in, under other numbers
						burst += 20
						set(rate)
					}
					if i == change {
						time.Sleep(time.Duration(random.Int64N(2000)) * ms)
						if raised == 1 {
							rate = faster
							set(rate)
						}
					}
					if takes {
						if _, err := l.Take(bg, "k", cost); err != nil {
							t.Error(err)
						}
						continue
					}
					waits.Go(func() {
						if err := l.Wait(bg, "k", cost); err != nil {
							t.Error(err)
						}
						starts[raised][i] = time.Since(began)
					})
					synctest.Wait()
				}
				waits.Wait()
			})
		}
		for i, without := range starts[0] {
			if with := starts[1][i]; with > without+without/100+ms {
				t.Fatalf("seed %d: waiter %d starts after %v, without the raise after %v\n%v\n%v", seed, i, with, without, starts[1], starts[0])
			}
		}
	}
}

// TestQueueRaisedIdle: once all that wait have started by a faster pace, nothing is in use; a limit of another
// name has nothing in use from the start, and those who wait begin it in their order.
func TestQueueRaisedIdle(t *testing.T) {
	for _, name := range []string{"", "other"} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, "1/1s leaky_queue burst 100")
			began, starts := time.Now(), make([]time.Duration, 101)
			var all sync.WaitGroup
			for i := range starts {
				all.Go(func() {
					if err := l.Wait(bg, "k", 1); err != nil {
						t.Error(err)
					}
					starts[i] = time.Since(began)
				})
				synctest.Wait()
			}
			if limit, err := stint.Parse("10/1s leaky_queue burst 100"); err != nil || l.SetLimits(limit.WithName(name)) != nil {
				t.Fatal(err)
			}
			all.Wait()
			if !slices.IsSorted(starts) || starts[100] > 10*time.Second {
				t.Errorf("name %q: starts %v", name, starts)
			}
			time.Sleep(10 * time.Second)
			must(t, l, 101)
		})
	}
}
