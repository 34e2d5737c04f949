package redisstore_test

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// BenchmarkLocal is what a decision costs that asks no server.
func BenchmarkLocal(b *testing.B) {
	server := redistest.Start(b)
	for _, c := range []struct {
		name string
		mode redisstore.Mode
		text string
	}{
		{"lease", redisstore.Lease, "1000000000/1s"},
		{"async", redisstore.Async, "1000000000/1s"},
		{"share", redisstore.Share, "1000000000/1s"},
		{"denied", redisstore.Strict, "1/1000h"},
	} {
		s := open(b, server.URL(), redisstore.Options{Modes: redisstore.Modes{DenialCache: time.Hour}})
		limit := bindIn(b, s, c.mode, c.text)
		warm := func(key string) {
			for range 100 {
				if _, err := limit.Allow(ctx, key, 1); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(c.name+"/one key", func(b *testing.B) {
			b.ReportAllocs()
			warm("k")
			for b.Loop() {
				_, _ = limit.Allow(ctx, "k", 1)
			}
		})
		b.Run(c.name+"/one key, parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					_, _ = limit.Allow(ctx, "k", 1)
				}
			})
		})
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = "key " + strconv.Itoa(i)
		}
		b.Run(c.name+"/1000 keys", func(b *testing.B) {
			b.ReportAllocs()
			for _, key := range keys {
				warm(key)
			}
			i := 0
			for b.Loop() {
				_, _ = limit.Allow(ctx, keys[i%len(keys)], 1)
				i++
			}
		})
		s.Close()
	}
}

// BenchmarkLeaseHot is four nodes on one hot key of 1,000,000 a second, each
// asked for 375,000: at 1.5 × the limit. It runs for b.N × 100 ms, when the
// burst has been used up. calls/1000 is how many calls the server got for
// 1,000 that were admitted, used which part of the limit was.
func BenchmarkLeaseHot(b *testing.B) {
	server := redistest.Start(b)
	const rate, count = 1_000_000, 4
	stores := nodes(b, server.URL(), count, redisstore.Options{})
	limits := make([]stint.Bound, count)
	for i, s := range stores {
		limits[i] = bindIn(b, s, redisstore.Lease, "1000000/1s")
	}
	take(b, limits[0], "k", 900_000) // the burst
	var admitted, asked atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	for _, limit := range limits {
		wg.Go(func() {
			began, done := time.Now(), int64(0)
			for !over.Load() {
				due := int64(time.Since(began)*rate*3/2/count) / int64(time.Second)
				got := int64(0)
				for range due - done {
					ok, err := limit.Allow(ctx, "k", 1)
					if err != nil {
						b.Error(err)
					}
					if ok {
						got++
					}
				}
				admitted.Add(got)
				asked.Add(due - done)
				done = due
				runtime.Gosched()
				time.Sleep(200 * time.Microsecond)
			}
		})
	}
	time.Sleep(time.Second)
	b.ResetTimer()
	before, was, wanted, began := calls(b, server), admitted.Load(), asked.Load(), time.Now()
	time.Sleep(time.Duration(b.N) * 100 * time.Millisecond)
	got, elapsed := admitted.Load()-was, time.Since(began)
	b.ReportMetric(float64(calls(b, server)-before)/float64(got)*1000, "calls/1000")
	b.ReportMetric(float64(got)/elapsed.Seconds()/rate, "used")
	b.ReportMetric(float64(asked.Load()-wanted)/elapsed.Seconds()/rate, "asked")
	over.Store(true)
	wg.Wait()
}
