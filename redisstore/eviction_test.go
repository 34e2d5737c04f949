package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestEvictionPolicies measures which policies take states that are in use, where another
// program fills the server. Only noeviction takes none. The states have an expiry of
// seconds to minutes, so volatile-ttl takes them first, and all of volatile-* take them
// where they are the only keys that expire.
func TestEvictionPolicies(t *testing.T) {
	t.Parallel()
	const keys, filler = 10, 3000 // of 2 KiB each
	value := strings.Repeat("x", 2048)
	for _, policy := range []string{"noeviction", "allkeys-lfu", "allkeys-lru", "allkeys-random", "volatile-ttl", "volatile-lru", "volatile-lfu", "volatile-random"} {
		for _, expires := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/others_expire=%v", policy, expires), func(t *testing.T) {
				server := redistest.Start(t, "--maxmemory", "5mb", "--maxmemory-policy", policy)
				store := open(t, server.URL(), redisstore.Options{NewKeys: -1, Timeout: patience})
				limit := bind(t, store, "100000 per 1000000s") // a state lives for ten seconds a unit
				other := client(t, server.Addr)
				var passed [keys]int64
				for i := range filler {
					lasts := time.Duration(0)
					if expires {
						lasts = 10 * time.Minute
					}
					_ = other.Set(ctx, fmt.Sprint("other", i), value, lasts).Err() // it may be full
					if i%100 == 0 {
						for k := range passed {
							if d, err := limit.Decide(ctx, meter.OpTake, fmt.Sprint("key", k), 1); err == nil && d.Allowed {
								passed[k]++ // else it is full: then a rule decides without it
							}
						}
					}
				}
				lost := 0
				for k := range passed {
					d, err := limit.Decide(ctx, meter.OpPeek, fmt.Sprint("key", k), 1)
					if err != nil {
						t.Fatal(err)
					}
					if d.Remaining > d.Limit-passed[k]+3 { // what time has given back
						lost++
					}
				}
				t.Logf("%d of %d keys in use have lost what they used", lost, keys)
				switch {
				case policy == "noeviction" && lost > 0:
					t.Error("it evicts")
				case policy == "volatile-ttl" && lost < 3, strings.HasPrefix(policy, "volatile") && !expires && lost < 3:
					t.Error("it spares them: what is said about this policy is wrong")
				}
			})
		}
	}
}

// TestFullDenies has a server without memory: requests that share a call with others,
// which would write, are denied as before, and those others get the server's refusal.
func TestFullDenies(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{Prefix: "full", NewKeys: -1, Timeout: patience})
	for _, text := range []string{"1/24h", "1/24h fixed_window", "1/24h; 2/48h"} {
		limit := bind(t, store, strings.Split(text, "; ")...)
		if d, err := limit.Decide(ctx, meter.OpTake, "exhausted", 1); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		server.CLI(t, "config", "set", "maxmemory", "1")
		var denied, refused atomic.Int64
		var callers sync.WaitGroup
		for i := range 64 {
			callers.Go(func() {
				for k := range 50 {
					key := "exhausted"
					if i%2 == 0 {
						key = fmt.Sprint("new ", i, " ", k)
					}
					switch d, err := limit.Decide(ctx, meter.OpTake, key, 1); {
					case key == "exhausted" && (err != nil || d.Allowed):
						t.Errorf("%s: a denied key: %+v, %v", text, d, err)
						return
					case key == "exhausted":
						denied.Add(1)
					case err == nil || !strings.Contains(err.Error(), "OOM"):
						t.Errorf("%s: a new key: %+v, %v", text, d, err)
						return
					default:
						refused.Add(1)
					}
				}
			})
		}
		callers.Wait()
		server.CLI(t, "config", "set", "maxmemory", "0")
		if st := store.Stats(); denied.Load() != 32*50 || refused.Load() != 32*50 || st.Batches == 0 || st.Open > 0 {
			t.Errorf("%s: %d denied, %d refused; %+v", text, denied.Load(), refused.Load(), st)
		}
		if d, err := limit.Decide(ctx, meter.OpTake, "later", 1); err != nil || !d.Allowed {
			t.Errorf("%s, later: %+v, %v", text, d, err)
		}
	}
}
