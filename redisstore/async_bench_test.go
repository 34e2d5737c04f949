package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// BenchmarkAsyncPush has ten thousand keys let something through, and sends what that was.
func BenchmarkAsyncPush(b *testing.B) {
	const keys = 10_000
	server := redistest.Start(b)
	cluster := redistest.StartCluster(b, 3, 0)
	for name, url := range map[string]string{"one server": server.URL(), "cluster": cluster.URL()} {
		b.Run(name, func(b *testing.B) {
			clock := newVirtual()
			store := open(b, url, redisstore.Options{Now: clock.now, Modes: redisstore.Modes{AsyncUnsent: 1000}})
			defer store.Close()
			limit := bindIn(b, store, redisstore.Async, "1000000/1000h burst 1000000")
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint("key ", i)
				take(b, limit, names[i], 1)
			}
			for b.Loop() {
				b.StopTimer()
				for _, key := range names {
					take(b, limit, key, 1)
				}
				clock.add(time.Second)
				b.StartTimer()
				store.Sweep()
			}
			b.ReportMetric(keys*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}
