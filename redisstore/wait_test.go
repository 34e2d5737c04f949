package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestWaitKilled lets two processes wait for a key and for several places, kills the server
// and starts it again: everybody hears what became of it, no more start than the limit lets
// pass, and who comes later waits as ever.
func TestWaitKilled(t *testing.T) {
	need.Time(t)
	server := redistest.Start(t)
	limit := stint.PerSecond(50).WithBurst(5)
	var started, failed, left atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	come := func(l *stint.Limiter, n int) {
		for i := range n {
			ctx, leave := context.WithCancel(t.Context())
			if i%5 == 3 {
				time.AfterFunc(time.Duration(i)*20*time.Millisecond, leave)
			}
			all.Go(func() {
				defer leave()
				switch err := l.Wait(ctx, "k", 1); {
				case err == nil:
					started.Add(1)
				case errors.Is(err, context.Canceled):
					left.Add(1)
				default:
					failed.Add(1)
				}
			})
		}
	}
	var limiters []*stint.Limiter
	for range 2 {
		l := made.Limiter(t, open(t, server.URL(), redisstore.Options{Prefix: "wait", Timeout: time.Second}), "wait", limit)
		limiters = append(limiters, l)
		come(l, 100)
	}
	time.Sleep(time.Second)
	server.Kill()
	time.Sleep(100 * time.Millisecond)
	server.Launch(t)
	before := started.Load()
	for i := 0; started.Load() == before && i < 100; i++ { // until the stores dare to ask again
		for _, l := range limiters {
			come(l, 2)
		}
		time.Sleep(50 * time.Millisecond)
	}
	all.Wait()
	most := 2*(5+50) + int64(time.Since(began).Seconds()*50) + 1 // the server has lost its state
	if n := started.Load(); n > most || n == before || before < 30 || failed.Load() == 0 || left.Load() == 0 {
		t.Errorf("%d started, at most %d, %d before; %d failed, %d left", n, most, before, failed.Load(), left.Load())
	}
}
