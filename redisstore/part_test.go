package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

// full is what a node without memory answers.
const full = redisstore.ReplyError("OOM command not allowed when used memory > 'maxmemory'.")

// TestDoneInPart has a node of a cluster refuse its part of a refund, and of a
// settlement, that another has carried out: that is not told as not executed, or who
// asks again would give back twice.
func TestDoneInPart(t *testing.T) {
	t.Parallel()
	a := newApart(t, redisstore.Options{Timeout: patience})
	store, mine := a.store, "mine"
	there, _ := a.keys(mine)
	limit := bind(t, store, "100/24h")
	layers := []stint.Layer{{Bound: limit, Key: mine}, {Bound: limit, Key: there}}
	take(t, limit, mine, 10)
	take(t, limit, there, 10)
	_, token, err := store.Reserve(ctx, layers, 4, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, act := range map[string]func() error{
		"refund": func() error { _, err := store.Refund(ctx, layers, 4); return err },
		"settle": func() error { _, err := store.Settle(ctx, token, 0); return err },
	} {
		before := take(t, limit, mine, 0).Remaining
		allow := a.refuse(there, full, "f", "s")
		err := act()
		allow()
		if back := take(t, limit, mine, 0).Remaining - before; back != 4 || !errors.Is(err, stint.ErrAmbiguous) || errors.Is(err, redisstore.ErrNotExecuted) {
			t.Errorf("%s: %d were given back, and the error is: %v", name, back, err)
		}
	}
	if _, err := store.Settle(ctx, token, 0); err != nil {
		t.Error(err)
	}
	if d := take(t, limit, there, 0); d.Remaining != 90 {
		t.Errorf("settled again, %d remain, want 90", d.Remaining)
	}
}
