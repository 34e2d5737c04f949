package memstore_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint/memstore"
)

// BenchmarkSettleOfLog times settling on a log of 10,000 entries beside a take
// on it, in turns: take-ns/op, settle-ns/op and their ratio. The reservation is
// the oldest, one in the middle or the newest of the log. What is around it, the
// reserve and what fills the log again, is not timed.
func BenchmarkSettleOfLog(b *testing.B) {
	const entries = 10_000
	for _, where := range []struct {
		name  string
		after int // takes after the reservation
	}{{"oldest", entries - 1}, {"middle", entries / 2}, {"newest", 0}} {
		b.Run(where.name, func(b *testing.B) {
			var c clock
			s := memstore.New(memstore.Options{Now: c.now})
			l := limiter(b, s, "10000/10us sliding_log") // full once 10,000 ns have passed
			fill := func(n int) {
				for range n {
					c.advance(1)
					l.Allow(ctx, "a")
				}
			}
			fill(entries)
			var takes, settles time.Duration
			for range b.N {
				c.advance(1)
				_, token, err := l.Reserve(ctx, "a", 1, time.Hour)
				if err != nil || token == nil {
					b.Fatal(token, err)
				}
				fill(where.after)
				begin := time.Now()
				_, err = token.Cancel(ctx)
				settles += time.Since(begin)
				if err != nil {
					b.Fatal(err)
				}
				c.advance(1)
				begin = time.Now()
				d, _ := l.Take(ctx, "a", 1)
				takes += time.Since(begin)
				if !d.Allowed {
					b.Fatal(d)
				}
			}
			n := float64(b.N)
			b.ReportMetric(float64(takes)/n, "take-ns/op")
			b.ReportMetric(float64(settles)/n, "settle-ns/op")
			b.ReportMetric(float64(settles)/float64(takes), "ratio")
		})
	}
}
