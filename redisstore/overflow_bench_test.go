package redisstore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// BenchmarkBudget is what the budget for new keys costs a call: asking whether it
// is spent, as each does, and taking a key from it, as those do that make one.
func BenchmarkBudget(b *testing.B) {
	born := time.Now()
	budget := redisstore.NewBudget(10_000)
	b.Run("asked", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				_ = budget.Spent(int64(time.Since(born)))
			}
		})
	})
	b.Run("asked and taken from", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if now := int64(time.Since(born)); !budget.Spent(now) {
					budget.Spend(now, 1)
				}
			}
		})
	})
}

// BenchmarkOverflow says what a decision costs Redis when the budget is spent,
// beside one with a budget that travels alone: of keys that are there, and of
// newcomers. The metrics are those of BenchmarkCPU.
func BenchmarkOverflow(b *testing.B) {
	server := redistest.Start(b)
	c := client(b, server.Addr)
	const callers = 4 // few enough that none waits for a batch
	for _, text := range []string{"1000000/1000h", "1000000/1000h fixed_window"} {
		for _, with := range []string{"a budget", "cells, keys in use", "cells, newcomers"} {
			b.Run(text+", "+with, func(b *testing.B) {
				do(b, c, "FLUSHALL")
				store := open(b, server.URL(), redisstore.Options{NewKeys: 1_000_000_000})
				defer store.Close()
				limit := bind(b, store, text)
				if with != "cells, newcomers" {
					for i := range 100 {
						take(b, limit, fmt.Sprint("key ", i), 1)
					}
				}
				if with != "a budget" {
					store.Flood()
				}
				reset(b, c)
				before := cpuOf(b, c)
				b.ResetTimer()
				var wg sync.WaitGroup
				for g := range callers {
					wg.Go(func() {
						for i := g; i < b.N; i += callers {
							take(b, limit, fmt.Sprint("key ", i%100), 1)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(usecPerCall(b, c, "evalsha"), "script-µs/op")
				b.ReportMetric((cpuOf(b, c)-before)/float64(b.N)*1e6, "cpu-µs/op")
			})
		}
	}
}
