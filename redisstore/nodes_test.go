package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
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

// TestProbePatience has a server answer too late for requests, and not at all: a
// probe finds the one out and not the other, and once requests are in time again
// the breaker stays closed. While the server does not answer no request is the one
// that tries it, and once it does that is noticed within a second, whatever tries
// still hang.
func TestProbePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pace, trying atomic.Int64 // how long an answer takes, and how many tries are on their way
		store, err := redisstore.New(redisstore.Options{NewKeys: -1, Driver: answers(func(ctx context.Context, args []string) (any, error) {
			if args[0] == "d" {
				trying.Add(1)
				defer trying.Add(-1)
			}
			return int64(0), after(ctx, time.Duration(pace.Load()))
		})})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limit, most := bind(t, store, "1000000/s"), int64(0)
		open := func(late time.Duration) (parts int) { // of 1000
			pace.Store(int64(late))
			tried := 0
			for range 3000 {
				began := time.Now()
				_, _ = limit.Decide(t.Context(), meter.OpTake, "a", 1) // what comes of it is the breaker's
				if time.Since(began) > 0 {
					tried++
				}
				time.Sleep(time.Millisecond)
				parts += store.Stats().Open
				most = max(most, trying.Load())
			}
			if late == time.Hour && tried > 3 { // those that have it given up
				t.Errorf("a server that does not answer: %d requests tried it", tried)
			}
			return parts / 3
		}
		if n := open(time.Millisecond); n != 0 {
			t.Errorf("a server that is well: open for %d of 1000", n)
		}
		if n := open(time.Hour); n < 900 {
			t.Errorf("a server that does not answer: open for %d of 1000", n)
		}
		if n := open(50 * time.Millisecond); n == 0 || n > 985 {
			t.Errorf("a server that is late: open for %d of 1000", n)
		}
		for range 10 {
			open(time.Hour)
			if n := open(time.Millisecond); n > 200 {
				t.Errorf("a server that answers again: open for %d of 1000", n)
			}
		}
		if n := open(time.Millisecond); n > 300 {
			t.Errorf("a server that is well again: open for %d of 1000", n)
		}
		if n := open(time.Millisecond); n != 0 {
			t.Errorf("a server that has been well for long: open for %d of 1000", n)
		}
		if most != redisstore.MostProbes {
			t.Errorf("%d tries at once", most)
		}
	})
	shows(t, "tries of a node that fails", fmt.Sprint(redisstore.MostProbes, " at once, none of them a request"))
}

// TestInterleavedSlots stops one of three masters whose slots lie between those of
// the others: only its own are refused.
func TestInterleavedSlots(t *testing.T) {
	need.Time(t)
	t.Parallel()
	c := redistest.StartInterleaved(t, 3)
	for _, s := range c.Nodes { // the others go on without it
		s.CLI(t, "config", "set", "cluster-require-full-coverage", "no")
	}
	store := open(t, c.URL(), redisstore.Options{Timeout: 5 * time.Second, Prefix: "interleaved"})
	limit := bind(t, store, "100000/1h")
	ask := func(i int) (slot uint16, err error) {
		key := fmt.Sprint("key ", i)
		_, err = limit.Decide(ctx, meter.OpTake, key, 1)
		return redisstore.Slot(redisstore.State(redisstore.Options{Prefix: "interleaved"}, key, "100000/1h")), err
	}
	for i := range 300 {
		eventually(t, "the cluster does not decide", func() bool { _, err := ask(i); return err == nil })
	}
	c.Nodes[1].Signal(t, syscall.SIGSTOP)
	eventually(t, "requests to a master that stands still are all sent", func() bool {
		var asking sync.WaitGroup
		var refused atomic.Bool
		for i := range 30 {
			asking.Go(func() {
				if slot, err := ask(i); slot%3 == 1 && errors.Is(err, redisstore.ErrUnavailable) {
					refused.Store(true)
				}
			})
		}
		asking.Wait()
		return refused.Load()
	})
	asked, kept := 0, 0
	var failed []error
	for i := range 3000 {
		slot, err := ask(i)
		if slot%3 == 1 {
			if err != nil {
				kept++
			}
			continue
		}
		if asked++; err != nil {
			failed = append(failed, err)
		}
	}
	c.Nodes[1].Signal(t, syscall.SIGCONT)
	if len(failed) > 0 || asked < 1000 || kept < 500 {
		t.Errorf("%d of %d requests failed whose masters are well, such as by %v, and %d of the others", len(failed), asked, failed[:min(3, len(failed))], kept)
	}
	eventually(t, "what was stopped does not decide again", func() bool {
		for i := range 30 {
			if _, err := ask(i); err != nil {
				return false
			}
		}
		return true
	})
}
