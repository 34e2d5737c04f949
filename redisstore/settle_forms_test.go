package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// settledUnder reserves 8 under one list of limits, has another list do something, and
// settles. It returns what is left under each list then.
func settledUnder(t *testing.T, s stint.Store, before, after string, do func(b stint.Bound) error, cost int64) (left [2]int64) {
	t.Helper()
	all := [2]stint.Bound{bound(t, s, before), bound(t, s, after)}
	d, id, err := s.Reserve(ctx, []stint.Layer{{Bound: all[0], Key: "key"}}, 8, time.Minute)
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if err := do(all[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settle(ctx, id, cost); err != nil {
		t.Fatal(err)
	}
	for i, b := range all {
		if d, err = b.Decide(ctx, meter.OpPeek, "key", 0); err != nil {
			t.Fatal(err)
		}
		left[i] = d.Remaining
	}
	return left
}

// TestSettledAfterDenial settles a reservation when another form has only denied since,
// or has only been asked for nothing: a denial that meets the key is a decision, and
// nothing is given back after it; a request of cost 0, reserved or not, and a peek are
// none. All is in Redis as in memory.
func TestSettledAfterDenial(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	acts := []struct {
		name      string
		givesBack bool
		do        func(s stint.Store, b stint.Bound) error
	}{
		{"denied", false, func(_ stint.Store, b stint.Bound) error {
			d, err := b.Decide(ctx, meter.OpTake, "key", 6)
			if d.Allowed {
				return fmt.Errorf("6 passed: %+v", d)
			}
			return err
		}},
		{"reserve denied", false, func(s stint.Store, b stint.Bound) error {
			d, _, err := s.Reserve(ctx, []stint.Layer{{Bound: b, Key: "key"}}, 9, time.Minute)
			if d.Allowed {
				return fmt.Errorf("9 passed: %+v", d)
			}
			return err
		}},
		{"peek", true, func(_ stint.Store, b stint.Bound) error {
			_, err := b.Decide(ctx, meter.OpPeek, "key", 6)
			return err
		}},
		{"take 0", true, func(_ stint.Store, b stint.Bound) error {
			_, err := b.Decide(ctx, meter.OpTake, "key", 0)
			return err
		}},
		{"reserve 0", true, func(s stint.Store, b stint.Bound) error {
			_, _, err := s.Reserve(ctx, []stint.Layer{{Bound: b, Key: "key"}}, 0, time.Minute)
			return err
		}},
	}
	for i, lists := range [][2]string{
		{"10/1m as x", "5/1h as x"},
		{"10/1m", "5/1h"},
		{"10/1m sliding_log as x", "9/1h sliding_log as x"},
		{"10/1h fixed_window", "9/1h fixed_window"},
		{"10/1m burst 9 leaky_queue as x", "8/1m burst 7 leaky_queue as x"},
	} {
		for j, act := range acts {
			for _, cost := range []int64{0, 3, 8, 9} {
				t.Run(fmt.Sprint(lists, act.name, cost), func(t *testing.T) {
					var left [2][2]int64
					for k, s := range []stint.Store{
						open(t, server.URL(), redisstore.Options{Prefix: fmt.Sprint("denied", i, j, cost), Now: clock}),
						memstore.New(memstore.Options{Now: clock}),
					} {
						left[k] = settledUnder(t, s, lists[0], lists[1], func(b stint.Bound) error { return act.do(s, b) }, cost)
					}
					if left[0] != left[1] {
						t.Errorf("%v left in Redis, %v in memory", left[0], left[1])
					}
					counts := max(cost, 8)
					if act.givesBack {
						counts = cost
					}
					if want := 10 - counts; left[1][0] != want {
						t.Errorf("%d left under the first, want %d", left[1][0], want)
					}
				})
			}
		}
	}
}

// TestSettledInAnotherList settles a reservation when another list, in which its limit
// stands as it was, has decided since: the limit has one state in Redis, which gives
// back what was reserved; in memory the list is another form, and nothing is given back.
func TestSettledInAnotherList(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	take := func(b stint.Bound) error {
		_, err := b.Decide(ctx, meter.OpTake, "key", 1)
		return err
	}
	redis := open(t, server.URL(), redisstore.Options{Prefix: "another", Now: clock})
	if left := settledUnder(t, redis, "10/1m", "10/1m, 50/1h", take, 3); left[0] != 6 {
		t.Errorf("%d left in Redis, want 6: 3 and 1 are charged", left[0])
	}
	memory := memstore.New(memstore.Options{Now: clock})
	if left := settledUnder(t, memory, "10/1m", "10/1m, 50/1h", take, 3); left[0] != 1 {
		t.Errorf("%d left in memory, want 1: 8 and 1 are charged", left[0])
	}
}
