package redisstore_test

import (
	"fmt"
	"strings"
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
