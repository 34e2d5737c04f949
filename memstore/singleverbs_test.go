package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

func newSingle(t testing.TB, text string, o memstore.SingleOptions) *memstore.Single {
	t.Helper()
	s, err := memstore.NewSingle(limit(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// singleAt returns a limit without keys that goes by a clock, which begins at a time.
func singleAt(t testing.TB, begin time.Duration, text string) (*memstore.Single, *clock) {
	t.Helper()
	c := new(clock)
	c.advance(begin)
	return newSingle(t, text, memstore.SingleOptions{Now: c.now}), c
}

var singleLimits = []string{
	"10/1s", "7/3s burst 5", "5/1s burst 8 leaky_queue", "7/3s burst 3 leaky_queue", "6/1s burst 9 token_bucket_interval",
	"5/2s fixed_window", "5/2s fixed_window from first", "6/2s sliding_log", "6/2s sliding_counter", "6/2s sliding_buckets", "6/2s sliding_log count_denied",
}

// TestSingleIsAStore holds every verb to what a store answers for one key.
func TestSingleIsAStore(t *testing.T) {
	for _, text := range singleLimits {
		rng := rand.New(rand.NewPCG(7, uint64(len(text))))
		c := clock{}
		one := newSingle(t, text, memstore.SingleOptions{Now: c.now})
		many := limiter(t, memstore.New(memstore.Options{Now: c.now}), text)
		var held [][2]*stint.Reservation
		for step := range 4000 {
			c.advance(time.Duration(rng.Int64N(int64(400 * time.Millisecond))))
			cost := rng.Int64N(5)
			var what string
			var a, b stint.Decision
			var err, want error
			switch verb := rng.IntN(8); {
			case verb < 3:
				what = "take"
				a, err = one.Take(cost)
				b, want = many.Take(ctx, "k", cost)
			case verb == 3:
				what = "allow"
				a.Allowed = one.AllowN(cost)
				b.Allowed, want = many.AllowN(ctx, "k", cost)
			case verb == 4:
				what = "peek"
				a, err = one.Peek(cost)
				b, want = many.Peek(ctx, "k", cost)
			case verb == 5:
				what = "reserve"
				var r [2]*stint.Reservation
				ttl := time.Duration(1 + rng.Int64N(int64(3*time.Second)))
				a, r[0], err = one.Reserve(cost, ttl)
				b, r[1], want = many.Reserve(ctx, "k", cost, ttl)
				if (r[0] == nil) != (r[1] == nil) {
					t.Fatalf("%s: step %d: %v and %v", text, step, r[0], r[1])
				}
				if r[0] != nil {
					held = append(held, r)
				}
			case len(held) > 0:
				what = "settle"
				i := rng.IntN(len(held))
				a, err = held[i][0].Settle(ctx, cost)
				b, want = held[i][1].Settle(ctx, cost)
				if rng.IntN(4) > 0 {
					held = append(held[:i], held[i+1:]...)
				}
			}
			if a != b || !errors.Is(err, want) {
				t.Fatalf("%s: step %d, %s %d:\n%+v, %v\n%+v, %v", text, step, what, cost, a, err, b, want)
			}
		}
	}
}

// TestSingleSetLimit keeps what is in use, from every limit to every other: of the same
// algorithm and period it is in use, and others start unused.
func TestSingleSetLimit(t *testing.T) {
	var all []stint.Limit
	for _, text := range singleLimits {
		l := limit(t, text)
		if all = append(all, l); l.Algorithm().Takes(meter.Burst) {
			all = append(all, l.WithBurst(l.Burst()/2+1), l.WithBurst(l.Burst()*3))
		}
	}
	for _, from := range all {
		for _, to := range all {
			c := clock{}
			c.advance(time.Hour)
			s, err := memstore.NewSingle(from, memstore.SingleOptions{Now: c.now})
			if err != nil {
				t.Fatal(err)
			}
			for s.Allow() {
			}
			d, _ := s.Peek(1)
			used := d.Limit - d.Remaining
			if from.ID() != to.ID() {
				used = 0
			}
			if err := s.SetLimit(to); err != nil {
				t.Fatal(err)
			}
			d, err = s.Peek(1)
			if want := max(to.Capacity()-used, 0); err != nil || d.Remaining != want || s.Limit() != to {
				t.Errorf("%v to %v: %d remain of %d after %d were used, %v", from, to, d.Remaining, d.Limit, used, err)
			}
			if ok := s.Allow(); ok != (d.Remaining > 0) {
				t.Errorf("%v to %v: passes: %v, of %d", from, to, ok, d.Remaining)
			}
			c.advance(time.Hour)
			if d, _ := s.Peek(1); d.Remaining != d.Limit || !s.Allow() {
				t.Errorf("%v to %v: an hour later %+v", from, to, d)
			}
		}
	}
	s := newSingle(t, "1/s", memstore.SingleOptions{})
	if err := s.SetLimit(stint.Limit{}); err == nil || s.Limit() != limit(t, "1/s") {
		t.Errorf("a limit that is none: %v, in force %v", err, s.Limit())
	}
}

// TestSingleThereAndBack mints nothing when a limit is lowered and raised again.
func TestSingleThereAndBack(t *testing.T) {
	for _, other := range []string{"3/1h", "9/1h", "5/1h sliding_log", "5/1h fixed_window", "2/1h burst 1", "1000/1s"} {
		s, c := singleAt(t, time.Hour, "10/1h")
		for range 10 {
			if !s.Allow() {
				t.Fatal("denied")
			}
		}
		for _, text := range []string{other, "10/1h"} {
			if err := s.SetLimit(limit(t, text)); err != nil {
				t.Fatal(err)
			}
		}
		if s.Allow() {
			t.Errorf("by way of %s an exhausted limit lets pass", other)
		}
		c.advance(6 * time.Minute)
		if !s.Allow() || s.Allow() {
			t.Errorf("by way of %s: not one more after 6 minutes", other)
		}
		c.advance(3 * time.Hour)
		if !s.Allow() {
			t.Errorf("by way of %s: denied hours later", other)
		}
	}
}

// TestSingleSettlesUnderItsLimit cancels a reservation while a limit of another period is
// in force: it gives back to the limit that it was made of.
func TestSingleSettlesUnderItsLimit(t *testing.T) {
	s, _ := singleAt(t, time.Hour, "10/1h")
	_, r, err := s.Reserve(6, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetLimit(limit(t, "5/1m fixed_window")); err != nil || !s.AllowN(2) {
		t.Fatal("denied", err)
	}
	if _, err := r.Cancel(ctx); err != nil {
		t.Error(err)
	}
	if d, err := s.Peek(1); err != nil || d.Remaining != 3 {
		t.Errorf("%+v, %v: want 3 of the window", d, err)
	}
	if err := s.SetLimit(limit(t, "10/1h")); err != nil {
		t.Error(err)
	}
	if d, err := s.Peek(1); err != nil || d.Remaining != 10 {
		t.Errorf("%+v, %v: want all of the bucket", d, err)
	}
}

// TestSingleLockFree takes the lock while reservations are open or other numbers are in
// force, and not for longer.
func TestSingleLockFree(t *testing.T) {
	s, c := singleAt(t, time.Hour, "10/1h")
	want := func(what string, lockFree bool) {
		t.Helper()
		if s.Allow(); s.LockFree() != lockFree {
			t.Errorf("%s: without a lock: %t", what, !lockFree)
		}
	}
	want("new", true)
	_, r, err := s.Reserve(1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if want("reserved", false); r == nil {
		t.Fatal("denied")
	}
	if _, err := r.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	want("settled", true)
	if _, _, err := s.Reserve(1, time.Minute); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Minute)
	want("expired", true)
	if err := s.SetLimit(limit(t, "100/1h")); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Minute)
	want("of other numbers", true)
	if err := errors.Join(s.SetLimit(limit(t, "100/1h fixed_window")), s.SetLimit(limit(t, "100/1h"))); err != nil {
		t.Fatal(err)
	}
	want("there and back", true)
}

// TestSingleVerdicts lets all pass, and nothing, and leaves the state.
func TestSingleVerdicts(t *testing.T) {
	for _, text := range singleLimits {
		s, _ := singleAt(t, 0, text)
		if !s.Allow() {
			t.Fatal(text)
		}
		before, _ := s.Peek(1)
		s.SetUnlimited()
		for range 100 {
			if d, err := s.Take(5); !s.Allow() || err != nil || !d.Allowed || d.Taken != 5 {
				t.Fatalf("%s: unlimited: %+v, %v", text, d, err)
			}
		}
		if d, r, err := s.Reserve(7, time.Second); !d.Allowed || r != nil || err != nil {
			t.Errorf("%s: unlimited: %+v, %v, %v", text, d, r, err)
		}
		s.SetBlocked()
		if d, err := s.Take(1); s.Allow() || err != nil || d.Allowed || d.RetryAfter != stint.Never {
			t.Errorf("%s: blocked: %+v, %v", text, d, err)
		}
		var never *stint.WaitError
		if err := s.Wait(ctx, 1); !errors.As(err, &never) {
			t.Errorf("%s: blocked: %v", text, err)
		}
		if err := s.SetLimit(limit(t, text)); err != nil {
			t.Fatal(err)
		}
		if after, _ := s.Peek(1); after.Remaining != before.Remaining {
			t.Errorf("%s: %d remain, and did before: %d", text, after.Remaining, before.Remaining)
		}
	}
}

// TestSingleWait serves in order, wakes at a change of the limit and gives back
// what giving up leaves.
func TestSingleWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSingle(t, "1/s burst 1", memstore.SingleOptions{})
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		began := time.Now()
		for i := range 4 {
			all.Go(func() {
				if err := s.Wait(context.Background(), 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, fmt.Sprint(i, " ", time.Since(began)))
				mu.Unlock()
			})
			synctest.Wait()
		}
		time.Sleep(1500 * time.Millisecond)
		if err := s.SetLimit(limit(t, "10/s burst 1")); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if got := fmt.Sprint(order); got != "[0 0s 1 1s 2 1.55s 3 1.65s]" {
			t.Error(got)
		}
		r, err := s.WaitReserve(t.Context(), 1, time.Minute)
		if err != nil || r == nil {
			t.Fatal(err)
		}
		go func() { time.Sleep(time.Millisecond); r.Cancel(context.Background()) }()
		began = time.Now()
		if err := s.Wait(t.Context(), 1); err != nil || time.Since(began) != time.Millisecond {
			t.Errorf("%v after %v; want as soon as the other gave back", err, time.Since(began))
		}
	})
}

// TestSingleSetBelow lowers a limit below what the second in line needs: it hears of it at once.
func TestSingleSetBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSingle(t, "1/h burst 5", memstore.SingleOptions{})
		if !s.AllowN(5) {
			t.Fatal("full")
		}
		ctx, stop := context.WithCancel(t.Context())
		heard := make(chan error, 1)
		go func() { _ = s.Wait(ctx, 1) }() // it ends with ctx
		synctest.Wait()
		go func() { heard <- s.Wait(ctx, 5) }()
		synctest.Wait()
		if err := s.SetLimit(limit(t, "1/h burst 1")); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); len(heard) == 0 {
			t.Error("it waits for what can never pass")
		}
		stop()
	})
}

// TestCoarseClock never leads, and catches up within its tick; Close ends the
// goroutine and reads the clock again.
func TestCoarseClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSingle(t, "1000/1s burst 1", memstore.SingleOptions{CoarseClock: true})
		passed := 0
		began := time.Now()
		for time.Since(began) < time.Second {
			if s.Allow() {
				passed++
			}
			time.Sleep(100 * time.Microsecond)
		}
		if passed > 1000 || passed < 400 {
			t.Errorf("%d passed in a second at 1000/s", passed)
		}
		s.Close()
		time.Sleep(time.Millisecond)
		if !s.Allow() || s.Allow() {
			t.Error("the clock stands still after Close")
		}
		s.Close()
	})
}

// TestCoarseStore holds a store with a coarse clock to the limit, and ends its
// goroutine.
func TestCoarseStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{CoarseClock: true})
		l := limiter(t, s, "100/1s burst 10")
		passed := 0
		for range 1000 {
			if ok, err := l.Allow(ctx, "k"); err != nil {
				t.Fatal(err)
			} else if ok {
				passed++
			}
			time.Sleep(time.Millisecond)
		}
		if passed > 110 || passed < 108 {
			t.Errorf("%d passed in a second, want 109 or 110", passed)
		}
		if err := s.Close(); err != nil { // else synctest finds a goroutine
			t.Error(err)
		}
	})
}

// TestSingleChanges never lets more pass than the limit, however often it changes
// beside reservations that are canceled.
func TestSingleChanges(t *testing.T) {
	texts := []string{"10/24h", "9/24h", "7/24h burst 10", "10/24h burst 3"}
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, _ := singleAt(t, time.Hour, texts[0])
		n := 0
		var tr []string
		for range 60 {
			switch rng.IntN(4) {
			case 0:
				x := texts[rng.IntN(4)]
				if err := s.SetLimit(limit(t, x)); err != nil {
					t.Fatal(err)
				}
				tr = append(tr, x)
			case 1:
				d, r, err := s.Reserve(1, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					if _, err := r.Cancel(ctx); err != nil {
						t.Fatal(err)
					}
					tr = append(tr, "cancel")
				}
			default:
				if s.Allow() {
					n++
					tr = append(tr, "pass")
				}
			}
		}
		if n > 10 {
			t.Fatal("seed", seed, n, "passed:", tr)
		}
	}
}

// TestSingleChangesUnderADecision sets a limit after a decision has begun, and
// before it looks at the state: the limit before does not touch that any more.
func TestSingleChangesUnderADecision(t *testing.T) {
	for name, decide := range map[string]func(*memstore.Single) bool{
		"allow": func(s *memstore.Single) bool { return s.Allow() },
		"take":  func(s *memstore.Single) bool { d, _ := s.Take(1); return d.Allowed },
	} {
		c := clock{}
		c.advance(1000 * time.Hour)
		var meanwhile func()
		s := newSingle(t, "1000/s burst 1000", memstore.SingleOptions{Now: func() int64 {
			if do := meanwhile; do != nil {
				meanwhile = nil
				do()
			}
			return c.now()
		}})
		meanwhile = func() {
			if err := s.SetLimit(limit(t, "1/h")); err != nil || !s.Allow() {
				t.Fatal("the first under the new limit does not pass:", err)
			}
		}
		if decide(s) {
			t.Errorf("%s: passed, under the limit before", name)
		}
		if d, err := s.Peek(1); err != nil || time.Duration(d.RetryAfter) != time.Hour {
			t.Errorf("%s: retry after %v, %v; want an hour", name, d.RetryAfter, err)
		}
	}
}

// TestSingleWaitsUnderAChangedLimit sets a leaky_queue after others have waited
// under a bucket: who gives up then frees the place.
func TestSingleWaitsUnderAChangedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSingle(t, "1/s", memstore.SingleOptions{})
		if err := errors.Join(s.Wait(ctx, 1), s.Wait(ctx, 1), s.SetLimit(limit(t, "1/s burst 5 leaky_queue"))); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(time.Minute); !s.Allow() {
			t.Fatal("an idle queue does not start a request")
		}
		gone, leave := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, leave)
		if err := s.Wait(gone, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if d, err := s.Peek(1); err != nil || d.Delay != 900*time.Millisecond {
			t.Errorf("the next starts in %v, %v; want the place that was given up, in 900ms", d.Delay, err)
		}
	})
}
