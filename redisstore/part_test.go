package redisstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// A choosy driver refuses some calls, as a node without memory does.
type choosy struct {
	redisstore.Driver
	redisstore.Topology
	refuses atomic.Pointer[func(keys, args []string) bool]
}

func (c *choosy) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	if refuses := c.refuses.Load(); refuses != nil && (*refuses)(keys, args) {
		return nil, redisstore.ReplyError("OOM command not allowed when used memory > 'maxmemory'.")
	}
	return c.Driver.EvalSHA(ctx, sha, keys, args)
}

// apartStore returns a store on a cluster, its driver, and two keys on different nodes;
// of the second the driver refuses what begins with one of the verbs, once refusing.
func apartStore(t *testing.T, prefix string, verbs ...string) (store *redisstore.Store, mine, there string, refusing func(bool)) {
	t.Helper()
	c := redistest.StartCluster(t, 3, 0)
	inner := redisstore.NewDriver(client(t, c.Nodes[0].Addr))
	driver := &choosy{Driver: inner, Topology: inner.(redisstore.Topology)}
	store = open(t, "", redisstore.Options{Driver: driver, Prefix: prefix, Timeout: patience})
	knows(t, store)
	there, _ = apartKeys(store, prefix, "mine")
	away := redisstore.Slot(redisstore.State(redisstore.Options{Prefix: prefix}, there, "x"))
	refuses := func(keys, args []string) bool {
		for _, verb := range verbs {
			if args[0] == verb && redisstore.Slot(keys[0]) == away {
				return true
			}
		}
		return false
	}
	return store, "mine", there, func(on bool) {
		if driver.refuses.Store(nil); on {
			driver.refuses.Store(&refuses)
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
