package stint_test

import (
	"context"
	"errors"
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

func running(t *testing.T, texts ...string) *stint.Limiter {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	var limits []stint.Limit
	for _, text := range texts {
		limits = append(limits, parse(t, text))
	}
	return made.Limiter(t, store, "test", limits...)
}

// TestAcquire takes units until they are released, once however often that is called.
func TestAcquire(t *testing.T) {
	l := running(t, "2 in flight")
	first, release, err := l.Acquire(t.Context(), "a")
	if want := (stint.Decision{Allowed: true, Limit: 2, Remaining: 1, Taken: 1}); err != nil || first != want {
		t.Errorf("%+v, %v; want %+v", first, err, want)
	}
	_, second, _ := l.Acquire(t.Context(), "a")
	denied, third, err := l.Acquire(t.Context(), "a")
	if want := (stint.Decision{Limit: 2, RetryAfter: stint.Wait(time.Second), Denied: 1}); err != nil || denied != want {
		t.Errorf("%+v, %v; want %+v", denied, err, want)
	}
	third()
	if d, release, _ := l.Acquire(t.Context(), "b"); !d.Allowed {
		t.Error("another key is denied")
	} else {
		release()
	}
	release()
	release()
	if d, _, _ := l.Acquire(t.Context(), "a"); !d.Allowed || d.Remaining != 0 {
		t.Errorf("after a release: %+v", d)
	}
	if d, _, _ := l.Acquire(t.Context(), "a"); d.Allowed {
		t.Error("a second release gave back what another has")
	}
	second()
	if d, _, _ := l.AcquireN(t.Context(), "a", 3, time.Hour); d.Allowed || d.RetryAfter != stint.Never {
		t.Errorf("more than the limit: %+v", d)
	}
	if d, release, _ := l.AcquireN(t.Context(), "a", 0, 0); !d.Allowed {
		t.Errorf("a cost of 0: %+v", d)
	} else {
		release()
	}
	if _, release, err := l.AcquireN(t.Context(), "a", -1, 0); !errors.Is(err, stint.ErrCost) {
		t.Errorf("a cost below 0: %v", err)
	} else {
		release()
	}
}

// TestAcquireAllOrNone charges the limits over time only for what has its place, and has
// no place left where they deny.
func TestAcquireAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, "5/h", "2 in flight", "100/h sliding_log")
		var releases []func()
		for range 2 {
			d, release, err := l.Acquire(t.Context(), "a")
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			releases = append(releases, release)
		}
		if d, _, _ := l.Acquire(t.Context(), "a"); d.Allowed || d.Denied != 1<<1 || d.Tightest != 1 {
			t.Errorf("with two in flight: %+v", d)
		}
		for _, release := range releases {
			release()
		}
		for i := range 5 { // two were charged, the denial was not
			d, release, _ := l.Acquire(t.Context(), "a")
			release()
			if d.Allowed != (i < 3) {
				t.Errorf("request %d: %+v", i, d)
			}
			if !d.Allowed && d.Denied != 1<<0 {
				t.Errorf("request %d: denied by %b", i, d.Denied)
			}
		}
		time.Sleep(time.Hour)
		for range 2 { // the denials have kept no place
			if d, _, _ := l.Acquire(t.Context(), "a"); !d.Allowed {
				t.Errorf("an hour later: %+v", d)
			}
		}
	})
}

// TestAcquireWaits waits for a place, and gives it back when a context ends.
func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, "1 in flight")
		ctx, cancel := context.WithCancel(t.Context())
		_, release, _ := l.Acquire(t.Context(), "a")
		context.AfterFunc(ctx, release)
		time.AfterFunc(3*time.Second, cancel)
		began := time.Now()
		d, release, err := l.AcquireN(t.Context(), "a", 1, time.Minute)
		if took := time.Since(began); err != nil || !d.Allowed || took != 3*time.Second {
			t.Errorf("%+v, %v after %v", d, err, took)
		}
		began = time.Now()
		d, _, err = l.AcquireN(t.Context(), "a", 1, time.Minute)
		if took := time.Since(began); err != nil || d.Allowed || took != time.Minute {
			t.Errorf("%+v, %v after %v", d, err, took)
		}
		release()
		if _, _, err := l.AcquireN(ctx, "a", 1, time.Minute); err != nil {
			t.Errorf("a context that has ended: %v; nothing was to be waited for", err)
		}
	})
}

// TestAcquireBriefly: calls that wait for a moment only do not go before one that waits for more places,
// neither when their wait ends nor where there is no limit in flight.
func TestAcquireBriefly(t *testing.T) {
	for text, want := range map[string]time.Duration{"4 in flight": 74 * time.Millisecond, "4 in flight; 1000/s": 74 * time.Millisecond, "10/s burst 4": 300 * time.Millisecond} {
		for _, wait := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOf(t, split(text)...)
				ctx, stop := context.WithCancel(t.Context())
				work := func(cost int64, wait time.Duration) bool {
					d, release, err := l.AcquireN(ctx, "a", cost, wait)
					if err == nil && d.Allowed {
						time.AfterFunc(50*time.Millisecond, release)
					}
					return d.Allowed
				}
				for range 4 {
					work(1, 0)
				}
				began, started := time.Now(), time.Duration(0)
				go func() {
					if work(3, time.Hour) {
						started = time.Since(began)
					}
				}()
				synctest.Wait()
				for range 500 {
					go work(1, wait)
					time.Sleep(4 * time.Millisecond)
				}
				if synctest.Wait(); started == 0 || started > want {
					t.Errorf("%s, beside waits of %v: it starts after %v", text, wait, started)
				}
				stop()
			})
		}
	}
}

// TestAcquireAsWaiters: a call that waits begins no ban by its own attempts, and asks a leaky_queue no more
// often than its start comes near.
func TestAcquireAsWaiters(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10/s burst 4 ban 1h": 300 * time.Millisecond, "10/s burst 4 ban 1h; 9 in flight": 300 * time.Millisecond,
		"10/s burst 4 leaky_queue": 400 * time.Millisecond, "10/s burst 4 leaky_queue; 9 in flight": 400 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, split(text)...)
			if d, _, err := l.AcquireN(t.Context(), "k", 4, 0); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			began := time.Now()
			d, release, err := l.AcquireN(t.Context(), "k", 3, time.Hour)
			if release(); err != nil || !d.Allowed || time.Since(began)+d.Delay != want {
				t.Errorf("%s: %+v, %v after %v, want %v", text, d, err, time.Since(began), want)
			}
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer stop()
			if _, _, err = l.AcquireN(ctx, "k", 4, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want the context's", text, err)
			}
		})
	}
}

// TestAcquireBeside: a cost that passes is not said to pass never, because others wait for as much.
func TestAcquireBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, "4 in flight")
		_, release, _ := l.AcquireN(t.Context(), "a", 4, 0)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			_, release, _ := l.AcquireN(ctx, "a", 4, time.Hour)
			release()
		}()
		synctest.Wait()
		if d, _, err := l.Acquire(ctx, "a"); err != nil || d.Allowed || d.RetryAfter != stint.Wait(time.Second) {
			t.Errorf("%+v, %v", d, err)
		}
		stop()
		release()
	})
}

// TestAcquireNever: what is above a limit is denied at once, though another limit denies it, too.
func TestAcquireNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, "2 in flight", "1/5s burst 1")
		_, release, _ := l.Acquire(t.Context(), "a")
		began := time.Now()
		if d, _, err := l.AcquireN(t.Context(), "a", 2, time.Minute); err != nil || d.Allowed || time.Since(began) != 0 {
			t.Errorf("%+v, %v after %v", d, err, time.Since(began))
		}
		release()
		if _, release, err := l.AcquireN(t.Context(), "a", 1, time.Minute); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		} else {
			release()
		}
	})
}

// TestInFlightElsewhere fails every other method that decides, also while others wait, rather
// than let pass what it cannot count.
func TestInFlightElsewhere(t *testing.T) {
	for _, text := range []string{"10/s", "10/s ban 1s", "10/s fixed_window count_denied", "10/s leaky_queue"} {
		synctest.Test(t, func(t *testing.T) {
			l := running(t, "1 in flight", text)
			onlyAcquire(t, l)
			if _, _, err := l.Acquire(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			go func() { _, _, _ = l.AcquireN(t.Context(), "a", 1, time.Hour) }()
			synctest.Wait()
			onlyAcquire(t, l)
		})
	}
	only := running(t, "1 in flight")
	if _, err := only.Refund(t.Context(), "a", 1); !errors.Is(err, stint.ErrInFlight) {
		t.Errorf("Refund without another limit: %v", err)
	}
	if err := only.Reset(t.Context(), "a"); !errors.Is(err, stint.ErrInFlight) {
		t.Errorf("Reset without another limit: %v", err)
	}
	if err := only.SetLimits(stint.InFlight(2)); err == nil {
		t.Error("SetLimits: no error")
	}
	if _, err := stint.NewLimiter(struct{ stint.Store }{}, "a", stint.InFlight(2)); err == nil {
		t.Error("a store that cannot hold it: no error")
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	if _, err := store.Bind("a", stint.InFlight(2)); !errors.Is(err, stint.ErrInFlight) || strings.Count(err.Error(), "stint: ") != 1 {
		t.Errorf("Bind: %v", err)
	}
	for _, wrong := range []stint.Limit{
		stint.InFlight(0), stint.InFlight(1<<53 + 1), stint.InFlight(2).WithBurst(3), stint.InFlight(2).WithAlgorithm(stint.SlidingLog), stint.InFlight(2).WithCountDenied(),
	} {
		if wrong.Validate() == nil {
			t.Errorf("%v is good", wrong)
		}
	}
	if d, release, err := running(t, "1/h").Acquire(t.Context(), "a"); err != nil || !d.Allowed {
		t.Errorf("a limiter without limits in flight: %+v, %v", d, err)
	} else {
		release()
	}
}

// onlyAcquire has all methods that decide but Acquire fail with ErrInFlight.
func onlyAcquire(t *testing.T, l *stint.Limiter) {
	t.Helper()
	ctx := t.Context()
	calls := map[string]func() error{
		"Allow":       func() error { _, err := l.Allow(ctx, "a"); return err },
		"AllowEach":   func() error { return l.AllowEach(ctx, []string{"a"}, 1, make([]bool, 1)) },
		"Take":        func() error { _, err := l.Take(ctx, "a", 1); return err },
		"TakeUpTo":    func() error { _, err := l.TakeUpTo(ctx, "a", 1); return err },
		"Peek":        func() error { _, err := l.Peek(ctx, "a", 1); return err },
		"Reserve":     func() error { _, _, err := l.Reserve(ctx, "a", 1, time.Second); return err },
		"Wait":        func() error { return l.Wait(ctx, "a", 1) },
		"WaitReserve": func() error { _, err := l.WaitReserve(ctx, "a", 1, time.Second); return err },
		"NewQueue":    func() error { _, err := stint.NewQueue(l, "a", stint.QueueOptions{}); return err },
		"All":         func() error { _, err := stint.All(l.Key("a")).Take(ctx); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, stint.ErrInFlight) {
			t.Errorf("%s of %v: %v", name, l.Limits(), err)
		}
	}
}

// TestInFlightBeside blocks, unblocks, resets and refunds under the limits beside one in
// flight, whatever began the ban. Who is in flight stays, and who waits starts at once.
func TestInFlightBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := running(t, "2 in flight", "9/m", "3/h ban 10h"), t.Context()
		acquire := func(what string, allowed, banned bool) {
			t.Helper()
			d, release, err := l.Acquire(ctx, "a")
			if release(); err != nil || d.Allowed != allowed || d.Banned != banned || !allowed && d.Denied != 1<<2 {
				t.Errorf("%s: %+v, %v", what, d, err)
			}
		}
		do := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		do("Block", l.Block(ctx, "a", time.Minute))
		acquire("blocked", false, true)
		do("Unblock", l.Unblock(ctx, "a"))
		for range 3 {
			acquire("unblocked", true, false)
		}
		acquire("all is used", false, true)
		do("Unblock", l.Unblock(ctx, "a"))
		d, err := l.Refund(ctx, "a", 2)
		if err != nil || d.Remaining != 2 || d.Tightest != 2 {
			t.Errorf("Refund: %+v, %v", d, err)
		}
		acquire("refunded", true, false)
		do("Block", l.Block(ctx, "a", time.Hour))
		do("Reset", l.Reset(ctx, "a"))
		_, release, _ := l.AcquireN(ctx, "a", 2, 0)
		do("Reset", l.Reset(ctx, "a"))
		if d, _, err := l.Acquire(ctx, "a"); err != nil || d.Denied != 1 {
			t.Errorf("two are in flight: %+v, %v", d, err)
		}
		do("Block", l.Block(ctx, "a", time.Minute))
		waited := make(chan time.Duration)
		go func() {
			began := time.Now()
			d, _, err := l.AcquireN(ctx, "a", 1, time.Hour)
			if err != nil || !d.Allowed {
				t.Errorf("one that waits: %+v, %v", d, err)
			}
			waited <- time.Since(began)
		}()
		time.Sleep(time.Second)
		release()
		time.Sleep(time.Second)
		do("Unblock", l.Unblock(ctx, "a"))
		if took := <-waited; took != 2*time.Second {
			t.Errorf("it starts after %v", took)
		}
	})
}

// TestAcquireJudge shares limits among limiters of one name, and has an outside judge count.
func TestAcquireJudge(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	var now, most atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		l := made.Limiter(t, store, "shared", stint.InFlight(3))
		for range 4 {
			all.Go(func() {
				for range 500 {
					d, release, err := l.AcquireN(t.Context(), "k", 1, time.Minute)
					if err != nil || !d.Allowed {
						t.Errorf("%+v, %v", d, err)
						continue
					}
					if n := now.Add(1); n > 3 {
						most.Store(n)
					}
					now.Add(-1)
					release()
				}
			})
		}
	}
	all.Wait()
	if n := most.Load(); n > 0 {
		t.Errorf("%d in flight: want at most 3", n)
	}
}
