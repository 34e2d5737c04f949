package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// apartStore returns a store on a cluster, and two keys on different nodes. The node of the
// second refuses what begins with one of the verbs, as one without memory does, once
// refusing.
func apartStore(t *testing.T, prefix string, verbs ...string) (store *redisstore.Store, mine, there string, refusing func(bool)) {
	t.Helper()
	c := redistest.StartCluster(t, 3, 0)
	var away atomic.Int64 // the slot that is refused
	away.Store(-1)
	driver := &front{Driver: redisstore.NewDriver(client(t, c.Nodes[0].Addr)), eval: func(_ context.Context, keys, args []string, call func([]string) (any, error)) (any, error) {
		if int64(redisstore.Slot(keys[0])) == away.Load() && slices.Contains(verbs, args[0]) {
			return nil, redisstore.ReplyError("OOM command not allowed when used memory > 'maxmemory'.")
		}
		return call(args)
	}}
	store = open(t, "", redisstore.Options{Driver: driver, Prefix: prefix, Timeout: patience})
	knows(t, store)
	there, _ = apartKeys(store, prefix, "mine")
	return store, "mine", there, func(on bool) {
		if away.Store(-1); on {
			away.Store(int64(redisstore.Slot(redisstore.State(redisstore.Options{Prefix: prefix}, there, "x"))))
		}
	}
}

// TestDoneInPart has a node of a cluster refuse its part of a refund, and of a
// settlement, that another has carried out: that is not told as not executed, or who
// asks again would give back twice.
func TestDoneInPart(t *testing.T) {
	t.Parallel()
	store, mine, there, refusing := apartStore(t, "part", "f", "s")
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
		refusing(true)
		err := act()
		refusing(false)
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
