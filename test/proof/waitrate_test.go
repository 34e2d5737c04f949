package proof_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
)

// passesIn counts how often wait returns in a stretch of real time, called by 8 goroutines.
func passesIn(d time.Duration, wait func(context.Context) error) (n int64) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var passes atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for wait(ctx) == nil {
				passes.Add(1)
			}
		})
	}
	all.Wait()
	return passes.Load()
}

// TestWaitRate lets 8 goroutines wait all the time, beside golang.org/x/time/rate in the
// same program and at the same moments: as many pass, whatever the timers do.
func TestWaitRate(t *testing.T) {
	if os.Getenv("STINT_SOAK") == "" {
		t.Skip("it compares what passes in real time, which takes an idle machine: STINT_SOAK=1")
	}
	for _, count := range []int64{50, 200, 1000, 2000} {
		for _, burst := range []int64{1, 2, 5} {
			limit := stint.PerSecond(count).WithBurst(burst)
			single, err := memstore.NewSingle(limit, memstore.SingleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			limiter := made.Limiter(t, memstore.New(memstore.Options{}), "rate", limit)
			x := rate.NewLimiter(rate.Limit(count), int(burst))
			var passes [3]int64
			var all sync.WaitGroup
			for i, wait := range []func(context.Context) error{
				x.Wait,
				func(ctx context.Context) error { return single.Wait(ctx, 1) },
				func(ctx context.Context) error { return limiter.Wait(ctx, "a", 1) },
			} {
				all.Go(func() { passes[i] = passesIn(3*time.Second, wait) })
			}
			all.Wait()
			text := fmt.Sprintf("%d/s burst %d: x/time/rate %d, Single %d, Limiter %d of %d", count, burst, passes[0], passes[1], passes[2], 3*count+burst)
			t.Log(text)
			for _, n := range passes[1:] {
				if most := 3*count + burst + count; n*100 < passes[0]*98-100 || n > most {
					t.Error(text)
				}
			}
		}
	}
}
