package goredis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/goredis"
)

// TestChangeOfDriver has a program change from one client library to the other, and
// back: each reads what the other has written, on one server and on a cluster, and
// settles what the other has reserved.
func TestChangeOfDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	server, c := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	for url, client := range map[string]redis.UniversalClient{
		server.URL(): redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: 30 * time.Second}),
		c.URL():      redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Nodes[0].Addr}, ReadTimeout: 30 * time.Second}),
	} {
		defer client.Close()
		one := changed(t, redisstore.Options{URL: url})
		other := changed(t, redisstore.Options{Driver: goredis.New(client)})
		for i, text := range []string{
			"100/100h", "70/33h", "100/100h leaky_queue", "100/100h token_bucket_interval", "100/100h fixed_window",
			"100/100h sliding_log", "100/100h sliding_counter", "100/100h sliding_buckets", "100 per month in Europe/Berlin",
		} {
			used := int64(0)
			for round, by := range []*redisstore.Store{one, other, one, other} {
				layers := bound(t, by, text, fmt.Sprint("a", i), fmt.Sprint("b", i)) // in two slots
				if d, err := by.Decide(t.Context(), meter.OpTake, layers, 3); err != nil || !d.Allowed {
					t.Fatalf("%s: %+v, %v", text, d, err)
				}
				_, id, err := by.Reserve(t.Context(), layers, 5, time.Hour)
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				next := []*redisstore.Store{other, one}[round%2]
				if _, err := next.Settle(t.Context(), id, 2); err != nil {
					t.Errorf("%s: settled by the other: %v", text, err)
				}
				used += 5
				for _, reads := range []*redisstore.Store{one, other} {
					for _, layer := range bound(t, reads, text, fmt.Sprint("a", i), fmt.Sprint("b", i)) {
						d, err := layer.Bound.Decide(t.Context(), meter.OpPeek, layer.Key, 1)
						if is := d.Limit - d.Remaining; err != nil || is != used {
							t.Errorf("%s, round %d: %d units are used, want %d: %v", text, round, is, used, err)
						}
					}
				}
			}
		}
	}
}

func changed(t *testing.T, o redisstore.Options) *redisstore.Store {
	t.Helper()
	o.Prefix, o.Timeout = "changed", 30*time.Second
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// bound returns layers of a limit.
func bound(t *testing.T, store *redisstore.Store, text string, keys ...string) (layers []stint.Layer) {
	t.Helper()
	limit, err := stint.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := store.Bind("limit", limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		layers = append(layers, stint.Layer{Bound: b, Key: text + key})
	}
	return layers
}
