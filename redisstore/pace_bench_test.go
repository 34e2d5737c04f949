package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// BenchmarkPace measures how long decisions take at half of the pace that the least
// script which keeps a key can go at, beside that script at the same pace, in slices
// that take turns: "x" is p99 beside its p99, the median of the pairs.
func BenchmarkPace(b *testing.B) {
	server := redistest.Start(b)
	driver := redisstore.NewDriver(client(b, server.Addr))
	store, err := redisstore.New(redisstore.Options{Driver: driver, Prefix: "pace", Timeout: 5 * time.Second, NewKeys: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	limit := bind(b, store, "1/s burst 1000000")
	least := leastScript(b, driver)
	ours := func(key string) error {
		_, err := limit.Decide(ctx, meter.OpTake, key, 1)
		return err
	}
	for _, callers := range []int{16, 128} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			best := 0.0
			for range 3 {
				best = max(best, rate(b, callers, "floor:", least))
			}
			var ratios, p99s []float64
			for range max(b.N, 5) {
				base := atPace(b, callers, best/2, "floor:", least)
				own := atPace(b, callers, best/2, "ours:", ours)
				ratios, p99s = append(ratios, own/base), append(p99s, own)
			}
			slices.Sort(ratios)
			slices.Sort(p99s)
			b.ReportMetric(ratios[len(ratios)/2], "x")
			b.ReportMetric(p99s[len(p99s)/2], "p99-µs")
			b.ReportMetric(best/2, "calls/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// atPace has callers make so many calls a second for half a second, and returns the
// 99th percentile of how long after its moment each was answered, in µs.
func atPace(b *testing.B, callers int, perSecond float64, prefix string, call func(key string) error) float64 {
	each := time.Duration(float64(callers) / perSecond * float64(time.Second))
	begun := time.Now()
	took := make([][]float64, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			at := begun.Add(each * time.Duration(c) / time.Duration(callers))
			for i := c * 7919; at.Sub(begun) < 500*time.Millisecond; i++ {
				time.Sleep(time.Until(at))
				if err := call(prefix + strconv.Itoa(i%10_000)); err != nil {
					b.Error(err)
					return
				}
				took[c] = append(took[c], float64(time.Since(at).Nanoseconds())/1e3)
				at = at.Add(each)
			}
		})
	}
	wg.Wait()
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) == 0 {
		b.Fatal("no call was answered")
	}
	return all[len(all)*99/100]
}
