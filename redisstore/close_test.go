package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestCloseUnderLoad closes stores while callers in all modes ask them, some of
// whom give up: no connection is left behind, also not one that was being made.
func TestCloseUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	for round := range 40 {
		store, err := redisstore.New(redisstore.Options{URL: server.URL(), Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		strict, log := bind(t, store, "100000/1s"), bind(t, store, "1000/1m sliding_log")
		lease, async := bindIn(t, store, redisstore.Lease, "100000/1s"), bindIn(t, store, redisstore.Async, "100000/1m")
		var callers sync.WaitGroup
		for g := range 40 {
			callers.Go(func() {
				for i := range 100 {
					within, cancel := context.WithTimeout(ctx, time.Duration(i*g%700)*time.Microsecond)
					switch g % 5 {
					case 0, 1, 2, 3:
						_, _ = []stint.Bound{strict, log, lease, async}[g%5].Allow(within, "a", 1)
					case 4:
						_, id, err := store.Reserve(within, []stint.Layer{{Bound: strict, Key: "a"}, {Bound: log, Key: "b"}}, 1, time.Minute)
						if err == nil && id != "" {
							_, _ = store.Settle(within, id, 0)
						}
					}
					cancel()
				}
			})
		}
		time.Sleep(time.Duration(round%8) * time.Millisecond) // at another stage each time
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		callers.Wait()
	}
	eventually(t, "connections of closed stores are open", func() bool {
		return server.Stat(t, "clients", "connected_clients:") == 1 // that which asks
	})
}
