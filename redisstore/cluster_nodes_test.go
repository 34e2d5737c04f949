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

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A paced driver answers that a bucket is empty of backlog, after a while.
type paced struct {
	spy
	after atomic.Int64
}

func (p *paced) EvalSHA(ctx context.Context, _ string, _, _ []string) (any, error) {
	select {
	case <-time.After(time.Duration(p.after.Load())):
		return int64(0), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestProbePatience has a server answer too late for requests, and not at all: a
// probe finds the one out and not the other, and once requests are in time again
// the breaker stays closed. While the server does not answer no request is the one
// that tries it, and once it does that is noticed within a second, whatever tries
// still hang.
func TestProbePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := new(paced)
		store, err := redisstore.New(redisstore.Options{Driver: driver, NewKeys: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limit := bind(t, store, "1000000/s")
		open := func(after time.Duration) (parts int) { // of 1000
			driver.after.Store(int64(after))
			tried := 0
			for range 3000 {
				began := time.Now()
				_, _ = limit.Decide(t.Context(), meter.OpTake, "a", 1) // what comes of it is the breaker's
				if time.Since(began) > 0 {
					tried++
				}
				time.Sleep(time.Millisecond)
				parts += store.Stats().Open
			}
			if after == time.Hour && tried > 3 { // those that have it given up
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
	})
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

// TestScriptSentOnce has many calls on their way find the script gone: one of them
// sends it.
func TestScriptSentOnce(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Timeout: 5 * time.Second})
	limit := bind(t, store, "100000/1h")
	const callers, rounds = 256, 20
	for range rounds {
		do(t, c, "SCRIPT", "FLUSH")
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				// the slow path, on which only some are batched
				layers := []stint.Layer{{Bound: limit, Key: fmt.Sprint(i)}}
				if _, _, err := store.Reserve(ctx, layers, 1, time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	// who was told late that it is gone may send it again
	if n := callsOf(t, server, "eval"); n > 3*rounds {
		t.Errorf("the script was sent %d times in %d storms", n, rounds)
	}
	shows(t, "texts of the script that are sent when it is lost", "one a node")
}

// TestRequestDeadline has requests that take several calls: all of these together
// have the time that one has.
func TestRequestDeadline(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	var mu sync.Mutex
	ends := map[time.Time]int{} // until when each call has time
	slow := time.Duration(0)
	driver := &front{Driver: redisstore.NewDriver(client(t, c.Nodes[0].Addr)), eval: func(ctx context.Context, _, args []string, call func([]string) (any, error)) (any, error) {
		end, _ := ctx.Deadline()
		mu.Lock()
		ends[end]++
		mu.Unlock()
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return call(args)
	}}
	store := open(t, "", redisstore.Options{Driver: driver, Timeout: 5 * time.Second, NewKeys: -1})
	var layers []stint.Layer
	for i := range 4 {
		layers = append(layers, stint.Layer{Bound: bind(t, store, "1/1h"), Key: fmt.Sprint("key ", i)})
	}
	var id stint.ReservationID
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"take", func() error { _, err := store.Decide(ctx, meter.OpTake, layers[:2], 1); return err }},
		{"take that is denied", func() error { _, err := store.Decide(ctx, meter.OpTake, layers, 1); return err }},
		{"take up to", func() error { _, err := store.Decide(ctx, meter.OpTakeUpTo, layers[2:], 1); return err }},
		{"reset", func() error { return store.Reset(ctx, layers) }},
		{"reserve", func() (err error) { _, id, err = store.Reserve(ctx, layers, 1, time.Minute); return err }},
		{"settle", func() error { _, err := store.Settle(ctx, id, 0); return err }},
		{"refund", func() error { _, err := store.Refund(ctx, layers, 1); return err }},
	} {
		clear(ends)
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if len(ends) != 1 {
			t.Errorf("%s: calls until %d different times", step.name, len(ends))
		}
	}
	slow = time.Hour // and it ends then
	hurry := open(t, "", redisstore.Options{Driver: driver, Timeout: 15 * time.Millisecond})
	for i := range layers {
		layers[i].Bound = bind(t, hurry, "1/1h")
	}
	if _, err := hurry.Decide(ctx, meter.OpTake, layers, 1); !errors.Is(err, stint.ErrAmbiguous) && !errors.Is(err, redisstore.ErrNotExecuted) {
		t.Errorf("a driver that does not answer: %v", err)
	}
	shows(t, "one request waits for Redis", "15 ms")
}
