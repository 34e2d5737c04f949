package fallback

import (
	"fmt"
	"math"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// Share returns the part of a limit that one of n processes holds. It has the same
// identity for every n, so that what a key has used counts when n changes. Buckets and
// queues keep their exact rate for up to 16 processes, over a longer period: 100 a
// second on three is 33 and a third. Bursts, and the counts of windows, are divided and
// rounded down, to one at least. A debt is not: what is used is charged.
func Share(l stint.Limit, n int64) stint.Limit {
	n = max(n, 1)
	count, period := l.Count(), l.Period()
	if fine := fineness(l); l.Algorithm().Evenly() && fine > 1 {
		count, period = max(count*fine/n, 1), period*time.Duration(fine)
	} else if n > 1 {
		count = max(count/n, 1)
	} else {
		return l
	}
	part := alike(l, count, period)
	if l.Algorithm().Takes(meter.Burst) {
		least := int64(1)
		if l.Algorithm().Queues() {
			least = 0
		}
		part = part.WithBurst(max(l.Burst()/n, least))
	}
	if l.Debt() > 0 {
		part = part.WithDebt(l.Debt())
	}
	if l.Relaxed() {
		part = part.WithRelaxed()
	}
	if l.Ban() > 0 {
		part = part.WithBan(l.Ban())
	}
	if l.CountDenied() {
		part = part.WithCountDenied()
	}
	if part.Validate() != nil {
		return l // a whole limit is better than none
	}
	return part
}

// alike returns a limit of another count and period, of the same algorithm and name.
func alike(l stint.Limit, count int64, period time.Duration) stint.Limit {
	made := stint.New(count, period).WithAlgorithm(l.Algorithm())
	if unit, zone := l.Calendar(); unit != "" {
		made, _ = stint.Parse(fmt.Sprintf("%d/%s in %s", count, unit, zone)) // else it is not valid
	}
	if l.Algorithm().Takes(meter.Parts) {
		made = made.WithParts(l.Parts())
	}
	if l != l.WithName("") {
		made = made.WithName(l.Name())
	}
	return made
}

// unbanned returns the limit without its ban.
func unbanned(l stint.Limit) stint.Limit {
	made := alike(l, l.Count(), l.Period())
	if l.Algorithm().Takes(meter.Burst) {
		made = made.WithBurst(l.Burst())
	}
	if l.Debt() > 0 {
		made = made.WithDebt(l.Debt())
	}
	return made
}

// roomy returns a limit of the same identity, of units with dates, with room for all that
// was charged.
func roomy(part stint.Limit) stint.Limit {
	count := int64(math.MaxInt64)
	switch {
	case part.Algorithm().KeepsLog():
		count = max(part.Count(), 1_000_000) // as many as a memstore keeps unless told otherwise
	case part.Algorithm().Takes(meter.Parts) && part.Count() <= math.MaxInt32:
		count = math.MaxInt32 // more would be another limit
	}
	return alike(part, count, part.Period())
}

// fineness returns how many periods of a limit shares are counts of: as many as may be
// that 1, 2, 3 and more processes divide.
func fineness(l stint.Limit) int64 {
	for _, k := range [...]int64{720_720, 27_720, 2520, 420, 60, 12} { // all up to 16, 12, 10, 7, 6, 4
		if l.Count() <= math.MaxInt64/k && int64(l.Period()) <= math.MaxInt64/k {
			return k
		}
	}
	return 1
}
