package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/storetest"
)

// TestStore runs the suite that any store must pass.
func TestStore(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, now func() int64) stint.Store {
		return memstore.New(memstore.Options{Now: now})
	})
}

// TestResetForgetsFormerLimits changes a limit into one of another identity, resets the
// key, and changes it back: nothing of the key is left. A limit apart from others of its
// name is reset alone.
func TestResetForgetsFormerLimits(t *testing.T) {
	ctx := t.Context()
	s := memstore.New(memstore.Options{})
	first, then := limit(t, "10/1m ban 1h"), limit(t, "10/1m sliding_log")
	l := made.Limiter(t, s, "api", first)
	_, reserved, err := l.Reserve(ctx, "a", 4, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, cost := range []int64{6, 1} { // the second is denied, and begins the ban
		if _, err := l.Take(ctx, "a", cost); err != nil {
			t.Fatal(err)
		}
	}
	for _, do := range []error{l.SetLimits(then), l.Reset(ctx, "a"), l.SetLimits(first)} {
		if do != nil {
			t.Fatal(do)
		}
	}
	if d, err := l.Peek(ctx, "a", 1); err != nil || d.Remaining != 10 || d.Banned {
		t.Errorf("the limit before the change: %+v, %v", d, err)
	}
	if _, err := reserved.Settle(ctx, 1); !errors.Is(err, stint.ErrReservation) {
		t.Errorf("settled after a reset: %v", err)
	}

	both := made.Bound(t, s, "both", limit(t, "10/1m"), limit(t, "10/1h"))
	if _, err := both.Decide(ctx, meter.OpTake, "a", 3); err != nil {
		t.Fatal(err)
	}
	apart := func(i int) stint.Bound { return both.(interface{ Apart(int) stint.Bound }).Apart(i) }
	if err := s.Reset(ctx, []stint.Layer{{Bound: apart(0), Key: "a"}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{10, 7} {
		if d, err := apart(i).Decide(ctx, meter.OpPeek, "a", 1); err != nil || d.Remaining != want {
			t.Errorf("limit %d: %+v, %v; %d should remain", i, d, err, want)
		}
	}
}
