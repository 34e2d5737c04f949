package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// TestCallersDeadline has callers who leave before the store's deadline while the server
// does not answer: whoever decides without the store does so while they are still there.
// Those who leave by themselves, or wait for next to nothing, say nothing of the server.
func TestCallersDeadline(t *testing.T) {
	for name, front := range map[string]func(t *testing.T, shared *redisstore.Store) func(context.Context) (bool, error){
		"local":         inFront(fallback.Local),
		"open":          inFront(fallback.Open),
		"closed":        inFront(fallback.Closed),
		"policy local":  byRules("local"),
		"policy open":   byRules("open"),
		"policy closed": byRules("closed"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared, err := redisstore.New(redisstore.Options{Driver: answers(never), Timeout: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				ask := front(t, shared)
				hasty := func(d time.Duration) (passed bool, left time.Duration, err error) {
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					passed, err = ask(ctx)
					end, _ := ctx.Deadline()
					return passed, time.Until(end), err
				}
				for range 10 {
					if _, left, err := hasty(200 * time.Millisecond); err != nil || left != 50*time.Millisecond {
						t.Fatalf("a caller of 200 ms: %v, %v before it leaves; want 50 ms", err, left)
					}
					gone, leave := context.WithCancel(t.Context())
					time.AfterFunc(500*time.Millisecond, leave)
					if _, err := ask(gone); !errors.Is(err, context.Canceled) {
						t.Fatalf("a caller that has gone: %v", err)
					}
				}
				if open := shared.Stats().Open; open != 0 {
					t.Fatal("callers that could not have had an answer have opened the breaker")
				}
				for i := range 10 {
					passed, left, err := hasty(800 * time.Millisecond)
					if err != nil || left < 200*time.Millisecond || left > 200*time.Millisecond && i < 3 {
						t.Errorf("a caller of 800 ms: %v, %v before it leaves; want 200 ms", err, left)
					}
					if closed := name == "closed" || name == "policy closed"; passed && closed {
						t.Error("passed, although the store is away and the rule is closed")
					}
				}
				if open := shared.Stats().Open; open != 1 {
					t.Error("the breaker is closed")
				}
				if err := shared.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute) // for the calls that were left behind
			})
		})
	}
}

func inFront(mode fallback.Mode) func(*testing.T, *redisstore.Store) func(context.Context) (bool, error) {
	return func(t *testing.T, shared *redisstore.Store) func(context.Context) (bool, error) {
		front := fallback.New(shared, fallback.Options{Mode: mode})
		t.Cleanup(func() { _ = front.Close() })
		limit := made.Bound(t, front, "test", stint.PerHour(100))
		return func(ctx context.Context) (bool, error) { return limit.Allow(ctx, "key", 1) }
	}
}

// byRules has two rules beside the one that decides: they are in shadow, and their calls
// come after its own.
func byRules(failure string) func(*testing.T, *redisstore.Store) func(context.Context) (bool, error) {
	return func(t *testing.T, shared *redisstore.Store) func(context.Context) (bool, error) {
		p := made.Policy(t, shared, made.Rules(t, `{"attributes": ["user"], "rules": [
			{"name": "one", "key": ["user"], "limits": "100/h", "on_store_failure": "`+failure+`"},
			{"name": "two", "key": ["user"], "limits": "100/h", "shadow": true},
			{"name": "three", "key": ["user"], "limits": "100/h", "shadow": true}]}`), policy.Options{})
		t.Cleanup(p.Close)
		return func(ctx context.Context) (bool, error) {
			var r policy.Result
			err := p.Decide(ctx, policy.Map{"user": "ada"}, 1, &r)
			return r.Decision.Allowed, err
		}
	}
}

// TestInFlightDeadline has a caller who leaves before the store's deadline take places under
// limits in flight while the server does not answer: the limits over time do not wait for it
// once more.
func TestInFlightDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, err := redisstore.New(redisstore.Options{Driver: answers(never), Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		p := made.Policy(t, shared, made.Rules(t, `{"attributes": ["user"], "rules": [
			{"name": "one", "key": ["user"], "limits": ["100/h", "5 in flight"]},
			{"name": "all", "key": [], "limits": ["1000/h", "90 in flight"]}]}`), policy.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		r := policy.Result{WillRelease: true}
		err = p.Decide(ctx, policy.Map{"user": "ada"}, 1, &r)
		end, _ := ctx.Deadline()
		if left := time.Until(end); err != nil || !r.Decision.Allowed || left != 50*time.Millisecond {
			t.Errorf("%v, %v before the caller leaves; want 50 ms", err, left)
		}
		if owing, _, _ := p.Debts(); owing != 2 {
			t.Errorf("%d keys owe what the local share let through; want 2", owing)
		}
		if release := r.Release(); release != nil {
			release()
		}
		p.Close()
		_ = shared.Close()
		time.Sleep(time.Minute) // for the calls that were left behind
	})
}

// TestInFlightShadowSilent has rules in shadow with limits in flight while the server does not
// answer: a request waits for it once.
func TestInFlightShadowSilent(t *testing.T) {
	for name, first := range map[string]string{
		"over time":      `{"name": "a", "key": [], "limits": ["100/h"]},`,
		"in flight":      `{"name": "a", "key": [], "limits": ["90 in flight"]},`,
		"in shadow only": ``,
	} {
		synctest.Test(t, func(t *testing.T) {
			shared, err := redisstore.New(redisstore.Options{Driver: answers(never), Timeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			p := made.Policy(t, shared, made.Rules(t, `{"rules": [`+first+`
				{"name": "b", "shadow": true, "key": [], "limits": ["5 in flight"]},
				{"name": "c", "shadow": true, "key": [], "limits": ["50 in flight"]}]}`), policy.Options{})
			began, r := time.Now(), policy.Result{WillRelease: true}
			err = p.Decide(t.Context(), policy.Map{}, 1, &r)
			if took := time.Since(began); err != nil || !r.Decision.Allowed || r.StoreError == nil || took != time.Second {
				t.Errorf("%s: %v, %v after %v; want a second", name, err, r.StoreError, took)
			}
			for _, e := range r.Rules {
				if e.Shadow && e.Failed != policy.FailOpen {
					t.Errorf("%s: %+v", name, e)
				}
			}
			if release := r.Release(); release != nil {
				release()
			}
			p.Close()
			_ = shared.Close()
			time.Sleep(time.Minute) // for the calls that were left behind
		})
	}
}

// TestInFlightSlow takes places under several limits of a server that is slow: all of them
// together have the time of one call.
func TestInFlightSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := redisstore.New(redisstore.Options{Timeout: 150 * time.Millisecond, Driver: answers(func(ctx context.Context, args []string) (any, error) {
			return slices.Repeat([]any{int64(1)}, (len(args)-5)/2), after(ctx, 100*time.Millisecond)
		})})
		if err != nil {
			t.Fatal(err)
		}
		for what, ask := range map[string]func(context.Context, []inflight.Hold) (bool, error){
			"take": func(ctx context.Context, holds []inflight.Hold) (bool, error) {
				return s.InFlight().Acquire(ctx, holds)
			},
			"look": s.InFlight().Look,
		} {
			began := time.Now()
			if _, err := ask(t.Context(), flying(5, 10, 20)); err == nil || time.Since(began) != 150*time.Millisecond {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
		_ = s.Close()
		time.Sleep(time.Minute)
	})
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
