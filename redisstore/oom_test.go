package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

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
