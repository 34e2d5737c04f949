package memstore_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// TestSingleStalled stalls goroutines right after they have read the clock,
// for longer than the limit takes to drain: none of them pulls a newer state
// back, so no more passes than the limit holds.
func TestSingleStalled(t *testing.T) {
	for _, text := range []string{
		"1/1us", "30/1ms burst 1", "7/1ms burst 3", "10/1us leaky_queue", "10/1us token_bucket_interval",
		"10/1us fixed_window", "10/1us sliding_log", "10/1us sliding_counter", "10/1us sliding_buckets parts 10",
	} {
		t.Run(text, func(t *testing.T) {
			s, err := memstore.NewSingle(limit(t, text), memstore.SingleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			l := limit(t, text)
			clock := stallingClock{step: max(int64(l.Period())/l.Count()/3, 1)} // a third of a unit
			s.SetClock(clock.now)
			var passed, asked atomic.Int64
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					for n := range 2000 {
						ok := false
						if (n+i)%2 == 0 {
							ok = s.Allow()
						} else {
							d, err := s.Take(1)
							ok = err == nil && d.Allowed
						}
						asked.Add(1)
						if ok {
							passed.Add(1)
						}
					}
				})
			}
			wg.Wait()
			// What starts at an edge may have that window's count once more.
			rate := clock.at.Load() * l.Count() / int64(l.Period())
			if most := 2*l.Capacity() + rate; passed.Load() > most {
				t.Errorf("%d of %d passed, at most %d may", passed.Load(), asked.Load(), most)
			}
			// A retry reads the clock again, so time goes by with fewer questions.
			if least := min(rate, asked.Load()) / 8; passed.Load() < least {
				t.Errorf("%d of %d passed, at least %d should", passed.Load(), asked.Load(), least)
			}
		})
	}
}

// A stallingClock moves at each reading, and lets others run before the reader
// sees the time.
type stallingClock struct {
	step int64
	at   atomic.Int64
}

func (c *stallingClock) now() int64 {
	t := c.at.Add(c.step)
	for range t / c.step % 7 {
		runtime.Gosched()
	}
	return t
}

func TestSingleCosts(t *testing.T) {
	s, err := memstore.NewSingle(stint.PerSecond(10), memstore.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(-1); !errors.Is(err, stint.ErrCost) || s.AllowN(-1) {
		t.Error("a cost below zero passed")
	}
	if s.AllowN(math.MaxInt64) || !s.AllowN(0) || !s.AllowN(10) || s.AllowN(5) {
		t.Error("0 and 10 of 10 pass, more does not")
	}
	if _, err := memstore.NewSingle(stint.PerSecond(0), memstore.SingleOptions{}); err == nil {
		t.Error("a limit of 0 was taken")
	}
}

// TestSingleBesideWaiters has one wait for five units again and again while another takes all
// that it gets, in a Single and in a Limiter: the waiter gets its share in both.
func TestSingleBesideWaiters(t *testing.T) {
	for _, text := range []string{"10/s burst 6", "7/m burst 6", "6/s sliding_log", "6/s fixed_window"} {
		limit := limit(t, text)
		run := func(wait func(context.Context) error, allow func() bool) (waits, takes int) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
				defer stop()
				go func() {
					for wait(ctx) == nil {
						waits++
					}
				}()
				for ctx.Err() == nil {
					synctest.Wait()
					if allow() {
						takes++
					}
					time.Sleep(10 * time.Millisecond)
				}
				synctest.Wait()
			})
			return waits, takes
		}
		var single *memstore.Single
		var limiter *stint.Limiter
		waits, takes := run(func(ctx context.Context) error {
			if single == nil {
				single, _ = memstore.NewSingle(limit, memstore.SingleOptions{})
			}
			return single.Wait(ctx, 5)
		}, func() bool { return single.Allow() })
		wantWaits, wantTakes := run(func(ctx context.Context) error {
			if limiter == nil {
				limiter, _ = stint.NewLimiter(memstore.New(memstore.Options{}), "a", limit)
			}
			return limiter.Wait(ctx, "k", 5)
		}, func() bool { ok, _ := limiter.Allow(t.Context(), "k"); return ok })
		near := func(a, b int) bool { return max(a, b)-min(a, b) <= 1 } // whoever came first
		if !near(waits, wantWaits) || !near(takes, wantTakes) || waits == 0 {
			t.Errorf("%s: a Single lets %d wait and %d take, a Limiter %d and %d", text, waits, takes, wantWaits, wantTakes)
		}
	}
}
