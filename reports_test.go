package stint_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// TestPublicReports tries what users of other limiters have reported about those.
func TestPublicReports(t *testing.T) {
	for name, report := range map[string]struct {
		limits []string
		try    func(t *testing.T, l *stint.Limiter)
	}{
		"a wait that was canceled before takes nothing": {[]string{"1/h"}, func(t *testing.T, l *stint.Limiter) { // gkit 134, golang/go 52584
			gone, cancel := context.WithCancel(bg)
			cancel()
			if err := l.Wait(gone, "k", 1); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			expect(t, l, 1, true, 0)
		}},
		"a wait that would end too late says so": {[]string{"1/h"}, func(t *testing.T, l *stint.Limiter) { // golang/go 54541
			expect(t, l, 1, true, 0)
			soon, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			if err := l.Wait(soon, "k", 1); !errors.Is(err, context.DeadlineExceeded) || soon.Err() != nil {
				t.Errorf("%v, and the deadline has come: %v", err, soon.Err())
			}
		}},
		"what can never pass does not wait": {[]string{"10/s"}, func(t *testing.T, l *stint.Limiter) { // golang/go 16854
			if err := l.Wait(bg, "k", 11); err == nil {
				t.Error("it passed")
			}
			expect(t, l, 10, true, 0)
		}},
		"who gives up waiting frees the place": {[]string{"1/m leaky_queue burst 5"}, func(t *testing.T, l *stint.Limiter) { // uber-go/ratelimit 73
			expect(t, l, 1, true, 0)
			for range 3 {
				impatient, cancel := context.WithCancel(bg)
				time.AfterFunc(time.Second, cancel)
				if err := l.Wait(impatient, "k", 1); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			start := time.Now()
			if err := l.Wait(bg, "k", 1); err != nil || time.Since(start) != 57*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}},
		"a greedy request that is denied takes nothing": {[]string{"10 per hour fixed_window", "10/h"}, func(t *testing.T, l *stint.Limiter) { // rate-limiter-flexible 286
			expect(t, l, 4, true, 0)
			expect(t, l, 7, false, -1)
			expect(t, l, 6, true, 0)
		}},
		"retry after is neither early nor late": {[]string{"6/m burst 6"}, func(t *testing.T, l *stint.Limiter) { // Losant/redis-gcra 3
			expect(t, l, 6, true, 0)
			expect(t, l, 1, false, 10*time.Second)
			time.Sleep(10*time.Second - time.Nanosecond)
			expect(t, l, 1, false, 1)
			time.Sleep(time.Nanosecond)
			expect(t, l, 1, true, 0)
		}},
		"retry after of a window is what is left of it": {[]string{"2 per 20s fixed_window"}, func(t *testing.T, l *stint.Limiter) { // dotnet/runtime 92557
			time.Sleep(time.Until(time.Now().Truncate(20 * time.Second).Add(20 * time.Second)))
			expect(t, l, 2, true, 0)
			time.Sleep(19 * time.Second)
			expect(t, l, 2, false, time.Second)
		}},
		"a wait counts once under each limit": {[]string{"10 per hour fixed_window", "1/s leaky_queue burst 5"}, func(t *testing.T, l *stint.Limiter) { // dotnet/aspnetcore 60852
			for range 3 {
				if err := l.Wait(bg, "k", 1); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Minute)
			for _, pass := range []bool{true, false} {
				if d, err := l.Peek(bg, "k", map[bool]int64{true: 6, false: 8}[pass]); err != nil || d.Allowed != pass {
					t.Error(d, err)
				}
			}
		}},
		"a higher limit is there a minute later": {[]string{"5/m"}, func(t *testing.T, l *stint.Limiter) { // bucket4j 419
			expect(t, l, 5, true, 0)
			if err := l.SetLimits(stint.PerMinute(10)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			expect(t, l, 10, true, 0)
			expect(t, l, 1, false, 6*time.Second)
		}},
		"what is left is what passes": {[]string{"5 per minute sliding_counter"}, func(t *testing.T, l *stint.Limiter) { // go-chi/httprate 28
			for left := range 5 {
				if d, err := l.Take(bg, "k", 1); err != nil || !d.Allowed || d.Remaining != int64(4-left) {
					t.Error(d, err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limits []stint.Limit
				for _, text := range report.limits {
					limits = append(limits, made.Limit(t, text))
				}
				l := made.Limiter(t, memstore.New(memstore.Options{}), "calls", limits...)
				report.try(t, l)
			})
		})
	}
}

// expect takes a cost; a retry after below 0 is any.
func expect(t *testing.T, l *stint.Limiter, cost int64, passes bool, retry time.Duration) {
	t.Helper()
	d, err := l.Take(bg, "k", cost)
	if wait, _ := d.RetryAfter.Duration(); err != nil || d.Allowed != passes || retry >= 0 && wait != retry {
		t.Errorf("cost %d: %+v, %v; want %v after %v", cost, d, err, passes, retry)
	}
}
