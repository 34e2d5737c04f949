package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/redisstore"
)

// TestBreaker goes through one failure, step by step.
func TestBreaker(t *testing.T) {
	var b redisstore.Breaker
	lets := func(want bool) {
		t.Helper()
		if b.Lets() != want {
			t.Errorf("calls are let in: %t", !want)
		}
	}
	for range 2 { // two failures are no reason
		if b.Ended(false, true) {
			t.Error("there is something to probe")
		}
	}
	lets(true)
	b.Ended(true, false) // well again
	for i := range 4 {   // on their way at once
		if probe := b.Ended(false, true); probe != (i == 2) {
			t.Errorf("failure %d: somebody has to probe: %t", i, probe)
		}
	}
	lets(false)
	b.Ended(false, false) // a caller that gave up
	lets(false)
	b.Ended(true, false) // one that was on its way all the while
	lets(true)
	b.Ended(false, true)
	b.Ended(false, true)
	lets(true) // all is forgotten
	if b.Ended(false, true) {
		t.Error("a second one probes beside the first")
	}
	lets(false)
}

// TestBreakerHolds lets a server fail and come back at random, with a caller
// every millisecond. Few calls are made in vain, however long it is gone; the
// server is used again within a second of its return; and no more than a few
// probes are on their way at once.
func TestBreakerHolds(t *testing.T) {
	seeds := uint64(50)
	if race.On || testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { breakerHolds(t, rand.New(rand.NewPCG(seed, 1))) })
	}
	shows(t, "tries of a node that fails", fmt.Sprint(redisstore.MostProbes, " at once, none of them a request"))
}

func breakerHolds(t *testing.T, rnd *rand.Rand) {
	const ms = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer func() { cancel(); calls.Wait() }()
	var b redisstore.Breaker
	var mu sync.Mutex // guards what follows, and rnd
	up, probes, most, vain := true, 0, 0, 0
	locked := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		f()
	}
	try := func(ctx context.Context) (good bool) {
		locked(func() {
			probes++
			most = max(most, probes)
			good = up
		})
		defer locked(func() { probes-- })
		if !good {
			select {
			case <-time.After(time.Second): // its patience
			case <-ctx.Done():
			}
		}
		return good
	}
	call := func() {
		if !b.Lets() {
			return
		}
		var impatient, good bool
		locked(func() {
			if impatient, good = rnd.IntN(20) == 0, up; !impatient && !good {
				vain++
			}
		})
		switch {
		case impatient:
			time.Sleep(ms)
			b.Ended(false, false)
			return
		case good:
			time.Sleep(ms)
		default:
			time.Sleep(25 * ms)
		}
		if b.Ended(good, !good) {
			calls.Go(func() { b.Probe(ctx, try) })
		}
	}
	turns := time.Duration(0)
	turn := func(now time.Duration) {
		if up && !b.Lets() {
			t.Errorf("at %v the server has been back for seconds", now)
		}
		up, vain = !up, 0
		turns = now + time.Second + time.Duration(rnd.Int64N(int64(3*time.Second)))
		if up {
			time.AfterFunc(time.Second, func() {
				locked(func() {
					if up && !b.Lets() {
						t.Errorf("back at %v and not used for a second", now)
					}
				})
			})
		}
	}
	for now := time.Duration(0); now < 30*time.Second; now += ms {
		if now >= turns {
			locked(func() { turn(now) })
		}
		calls.Go(call)
		time.Sleep(ms)
		locked(func() {
			if vain > 30 { // those that were on their way; no probe is one of them
				t.Fatalf("%d calls in vain", vain)
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if most > redisstore.MostProbes {
		t.Errorf("%d probes at once", most)
	}
}
