package fallback

import (
	"math"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// Share returns the part of a limit that one of n processes holds, with the
// same ID. Buckets and queues keep their exact rate: 100 a second on three
// is 100 in three seconds. Bursts, and the counts of windows, are divided and
// rounded down, to one at least.
func Share(l stint.Limit, n int64) stint.Limit {
	if n <= 1 {
		return l
	}
	count, period := l.Count(), l.Period()
	even := l.Algorithm() == meter.GCRA || l.Algorithm() == meter.LeakyQueue
	if even && period <= time.Duration(math.MaxInt64/n) {
		period *= time.Duration(n)
	} else {
		count = max(count/n, 1)
	}
	part := stint.New(count, period).WithAlgorithm(l.Algorithm())
	switch unit, zone := l.Calendar(); unit {
	case "day":
		part = stint.PerDayIn(count, zone)
	case "month":
		part = stint.PerMonthIn(count, zone)
	}
	switch l.Algorithm() {
	case meter.GCRA, meter.TokenBucketInterval:
		part = part.WithBurst(max(l.Burst()/n, 1))
	case meter.LeakyQueue:
		part = part.WithBurst(l.Burst() / n)
	case meter.SlidingSubWindows:
		part = part.WithParts(l.Parts())
	}
	if l.Relaxed() {
		part = part.WithRelaxed()
	}
	if l.CountDenied() {
		part = part.WithCountDenied()
	}
	if part = part.WithName(l.ID()); part.Validate() != nil {
		return l // a whole limit is better than none
	}
	return part
}
