package memstore_test

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// TestSingle admits exactly what the limit holds, from many goroutines.
func TestSingle(t *testing.T) {
	for _, text := range []string{
		"1000/1h", "999/7h", "1000/1h burst 999 leaky_queue", "1000/1h token_bucket_interval", "1000/day in UTC",
		"1000/1h fixed_window", "1000/1h sliding_log", "1000/1h sliding_counter", "1000/1h sliding_buckets",
	} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour) // not at an edge of anything
				l := limit(t, text)
				s, err := memstore.NewSingle(l)
				if err != nil {
					t.Fatal(err)
				}
				var passed atomic.Int64
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						for range 400 {
							if s.Allow() {
								passed.Add(1)
							}
						}
					})
				}
				wg.Wait()
				if got := passed.Load(); got != l.Capacity() {
					t.Errorf("%d passed, want %d", got, l.Capacity())
				}
				d, err := s.Take(1)
				if wait, ok := d.RetryAfter.Duration(); err != nil || d.Allowed || !ok || wait <= 0 {
					t.Fatalf("%+v, %v", d, err)
				}
				time.Sleep(time.Duration(d.RetryAfter) - 1)
				if s.Allow() {
					t.Error("passed a nanosecond early")
				}
				time.Sleep(time.Nanosecond)
				if !s.Allow() {
					t.Error("denied after the wait")
				}
			})
		})
	}
}

func TestSingleCosts(t *testing.T) {
	s, err := memstore.NewSingle(stint.PerSecond(10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(-1); !errors.Is(err, stint.ErrCost) || s.AllowN(-1) {
		t.Error("a cost below zero passed")
	}
	if s.AllowN(math.MaxInt64) || !s.AllowN(0) || !s.AllowN(10) || s.AllowN(5) {
		t.Error("0 and 10 of 10 pass, more does not")
	}
	if _, err := memstore.NewSingle(stint.PerSecond(0)); err == nil {
		t.Error("a limit of 0 was taken")
	}
}
