package redisstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/internal/redistest"
)

// newcomers lets so many clients come for the first time, as fast as they can, to
// some stores, and returns how many were denied and how many not decided.
func newcomers(t *testing.T, n int, limits ...stint.Bound) (denied, failed int64) {
	t.Helper()
	var next, no, errs atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for {
				k := next.Add(1)
				if k > int64(n) {
					return
				}
				d, err := limits[i%len(limits)].Decide(ctx, stint.OpTake, fmt.Sprint("client ", k), 1)
				switch {
				case err != nil:
					errs.Add(1)
				case !d.Allowed:
					no.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return no.Load(), errs.Load()
}

// TestColdStart has a server that has lost everything meet all clients of a busy
// site anew, at many times the rate that a budget of keys a second would let in:
// each has its own limit.
func TestColdStart(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{})
	defer store.Close()
	if denied, failed := newcomers(t, 60_000, bind(t, store, "2 per minute burst 1")); denied+failed > 0 {
		t.Errorf("of 60,000 clients that came for the first time %d were denied and %d not decided", denied, failed)
	}
	if st := store.Stats(); st.Overflowed != 0 {
		t.Errorf("%+v", st)
	}
}

// TestFloodByRoom floods a server that has little room, by two stores that say
// nothing of how many keys there may be: it is not filled, goes on deciding, and
// those that are there have their own limit to the end.
func TestFloodByRoom(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "16mb", "--maxmemory-policy", "noeviction")
	c := client(t, server.Addr)
	o := redisstore.Options{Prefix: "room"}
	one, other := open(t, server.URL(), o), open(t, server.URL(), o)
	defer one.Close()
	defer other.Close()
	limits := []stint.Bound{bind(t, one, "2/24h"), bind(t, other, "2/24h")}
	take(t, limits[0], "known", 1)
	denied, failed := newcomers(t, 200_000, limits...)
	info, err := do(t, c, "INFO", "memory").ToString()
	if err != nil {
		t.Fatal(err)
	}
	used := statistic(info, "used_memory:")
	t.Logf("%d denied, %d failed, %d bytes used", denied, failed, used)
	if failed > 0 || used > 15<<20 {
		t.Errorf("%d requests were not decided, %d bytes are used of 16 MiB", failed, used)
	}
	n, err := do(t, c, "DBSIZE").AsInt64()
	if err != nil || n < 20_000 {
		t.Errorf("%d keys, %v: there was room for more", n, err)
	}
	if st := one.Stats(); st.Overflowed == 0 || st.OverflowDenied == 0 || st.OverflowDenied > st.Overflowed {
		t.Errorf("%+v", st)
	}
	if d := take(t, limits[1], "known", 1); !d.Allowed {
		t.Errorf("a key that was there before: %+v", d)
	}
	if d := take(t, limits[0], "known", 1); d.Allowed {
		t.Errorf("more than its limit: %+v", d)
	}
}
