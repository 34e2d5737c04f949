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
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestStallWithoutSpareCore stalls a server under callers that leave no core to
// spare, each of which asks again as soon as it has an answer: also as soon as the
// breaker says no. When the server goes on, it decides again. Requests have time
// that a machine with other work besides does not use up: that a probe has more of
// it than a request, TestProbePatience says.
func TestStallWithoutSpareCore(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{Timeout: 500 * time.Millisecond})
	defer store.Close()
	limit := bind(t, store, "1000000/s burst 1000000")
	eventually(t, "the store does not decide", func() bool {
		_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
		return err == nil
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var decided atomic.Int64
	for i := range 128 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := limit.Decide(ctx, meter.OpTake, fmt.Sprint(i), 1); err == nil {
					decided.Add(1)
				}
			}
		})
	}
	defer func() { close(stop); wg.Wait() }()
	server.Signal(t, syscall.SIGSTOP)
	eventually(t, "the breaker does not open", func() bool { return store.Stats().Open == 1 })
	before := store.Stats().Results.Ambiguous
	time.Sleep(700 * time.Millisecond)
	if after := store.Stats().Results.Ambiguous; after > before+512 { // those that were on their way
		t.Errorf("%d requests were asked in vain behind an open breaker", after-before)
	}
	server.Signal(t, syscall.SIGCONT)
	eventually(t, "the breaker does not stay closed", func() bool {
		open := 0
		for range 100 {
			time.Sleep(5 * time.Millisecond)
			open += store.Stats().Open
		}
		return open < 20
	})
}

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
// the breaker stays closed.
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
			for range 3000 {
				_, _ = limit.Decide(t.Context(), meter.OpTake, "a", 1) // what comes of it is the breaker's
				time.Sleep(time.Millisecond)
				parts += store.Stats().Open
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
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	c := redistest.StartInterleaved(t, 3)
	for _, s := range c.Nodes { // the others go on without it
		s.CLI(t, "config", "set", "cluster-require-full-coverage", "no")
	}
	store := open(t, c.URL(), redisstore.Options{Timeout: 5 * time.Second, Prefix: "interleaved"})
	defer store.Close()
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

// eventually waits for something that takes as long as it takes, up to a bound.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", patience, what)
		}
	}
}

// TestScriptSentOnce has many calls on their way find the script gone: one of them
// sends it.
func TestScriptSentOnce(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Timeout: 5 * time.Second})
	defer store.Close()
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
	// the record of the limits is read by its text, as it may be lost too
	if n := callsOf(t, c, "eval"); n > 3*rounds {
		t.Errorf("the script was sent %d times in %d storms", n, rounds)
	}
	shows(t, "texts of the script that are sent when it is lost", "one a node")
}

// A clocked driver notes until when each call has time.
type clocked struct {
	redisstore.Driver
	mu   sync.Mutex
	ends map[time.Time]int
	slow time.Duration
}

func (c *clocked) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	end, _ := ctx.Deadline()
	c.mu.Lock()
	c.ends[end]++
	c.mu.Unlock()
	select {
	case <-time.After(c.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return c.Driver.EvalSHA(ctx, sha, keys, args)
}

// TestRequestDeadline has requests that take several calls: all of these together
// have the time that one has.
func TestRequestDeadline(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	driver := &clocked{Driver: redisstore.NewDriver(client(t, c.Nodes[0].Addr)), ends: map[time.Time]int{}}
	store := open(t, "", redisstore.Options{Driver: driver, Timeout: 5 * time.Second, NewKeys: -1})
	defer store.Close()
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
		clear(driver.ends)
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if len(driver.ends) != 1 {
			t.Errorf("%s: calls until %d different times", step.name, len(driver.ends))
		}
	}
	driver.slow = time.Hour // and it ends then
	hurry := open(t, "", redisstore.Options{Driver: driver, Timeout: 15 * time.Millisecond})
	defer hurry.Close()
	for i := range layers {
		layers[i].Bound = bind(t, hurry, "1/1h")
	}
	if _, err := hurry.Decide(ctx, meter.OpTake, layers, 1); !errors.Is(err, stint.ErrAmbiguous) && !errors.Is(err, redisstore.ErrNotExecuted) {
		t.Errorf("a driver that does not answer: %v", err)
	}
	shows(t, "one request waits for Redis", "15 ms")
}
