package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// ModesPartition takes one of the stores in modes Lease and Async its way to the
// server, which neither answers nor resets: it spends what it has in hand or may
// leave unsent, and then lets nothing more through; the others go on. All
// together stay within the bounds of their modes, and when the way is back, what
// was let through is counted to the unit.
func ModesPartition(t *testing.T) {
	server := redistest.Start(t)
	way := redistest.NewProxy(t, server.Addr)
	first := func(store int) redisstore.Options {
		if store == 0 {
			return redisstore.Options{URL: way.URL()}
		}
		return redisstore.Options{URL: server.URL()}
	}
	f := newFleet(t, first, "a", "b")
	time.Sleep(modeBurst * time.Second / modeRate) // buckets are full again
	f.during(func() {
		passes := func(limit int, key string) bool {
			d, _ := f.limits[limit][0].Decide(ctx, meter.OpTake, key, 1)
			return d.Allowed
		}
		eventually(f, "the node has nothing in hand when it is cut off", func() bool {
			for range 100 { // of a key that is its own, as fast as it can
				passes(0, "c")
			}
			way.Set(redistest.Fault{Stall: true})
			if passes(0, "c") {
				return true
			}
			way.Set(redistest.Fault{})
			time.Sleep(200 * time.Millisecond)
			return false
		})
		for begun := time.Now(); time.Since(begun) < 2200*time.Millisecond; time.Sleep(100 * time.Millisecond) {
			passes(0, "c")
		}
		for range modeUnsent { // where slow callers have not spent it
			_ = f.ask(0, "a")
		}
		for range 200 { // a lease lasts 1.75 s
			for i, key := range []string{"c", "a", "a"} {
				if passes(i, key) {
					f.Fatalf("mode %d: long after it was cut off, the node lets through what nobody knows of", i)
				}
			}
		}
		way.Set(redistest.Fault{})
		f.decided("afterwards")
	})
	f.envelopes("partition", 0, 2*modeRate)
	f.exact("partition")
	f.during(func() {}) // and all is as it was
	f.envelopes("afterwards", 0, 20)
	f.exact("afterwards")
}
