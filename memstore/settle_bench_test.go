package memstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
)

// BenchmarkSettleOfLog times settling on a log of 10,000 entries beside a take
// on it: take-ns/op, settle-ns/op, both medians, and their ratio. Of the log some
// entries in a row are reservations, the oldest, in the middle or the newest. They
// are settled in turns with takes: both are as warm.
func BenchmarkSettleOfLog(b *testing.B) {
	const entries, settled = 10_000, 64
	for _, where := range []struct {
		name   string
		before int // takes before the reservations
	}{{"oldest", 0}, {"middle", (entries - settled) / 2}, {"newest", entries - settled}} {
		b.Run(where.name, func(b *testing.B) {
			s, c := storeAt(0, memstore.Options{})
			l := limiter(b, s, "10000/1ms sliding_log")
			var takes, settles []time.Duration
			timed := func(into *[]time.Duration, do func()) {
				begin := time.Now()
				do()
				*into = append(*into, time.Since(begin))
			}
			fill := func(n int) {
				for range n {
					c.advance(1)
					l.Allow(ctx, "a")
				}
			}
			for range b.N {
				c.advance(time.Second)
				fill(where.before)
				var open []*stint.Reservation
				for range settled {
					c.advance(1)
					_, r, err := l.Reserve(ctx, "a", 1, time.Hour)
					if err != nil || r == nil {
						b.Fatal(r, err)
					}
					open = append(open, r)
				}
				fill(entries - settled - where.before)
				for _, r := range open {
					timed(&settles, func() { _, _ = r.Cancel(ctx) })
					c.advance(1)
					timed(&takes, func() { _, _ = l.Take(ctx, "a", 1) })
				}
			}
			slices.Sort(takes)
			slices.Sort(settles)
			take, settle := takes[len(takes)/2], settles[len(settles)/2]
			b.ReportMetric(float64(take), "take-ns/op")
			b.ReportMetric(float64(settle), "settle-ns/op")
			b.ReportMetric(float64(settle)/float64(take), "ratio")
		})
	}
}
