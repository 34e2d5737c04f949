package fallback

import (
	"fmt"
	"math"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// Share returns the limit that one of n processes holds. It has the same identity for every n, so
// that what a key has used still counts when n changes. Buckets and queues keep their exact rate
// for up to 16 processes, over a longer period: 100 a second on three processes is 33 and a third
// each. Bursts, and the counts of windows, are divided and rounded down, but are at least one. A
// debt is not divided, since units that were used are charged in full.
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
	share := alike(l, count, period)
	if l.Algorithm().Takes(meter.Burst) {
		least := int64(1)
		if l.Algorithm().Queues() {
			least = 0
		}
		share = share.WithBurst(max(l.Burst()/n, least))
	}
	if l.Debt() > 0 {
		share = share.WithDebt(l.Debt())
	}
	if l.Relaxed() {
		share = share.WithRelaxed()
	}
	if l.Ban() > 0 {
		share = share.WithBan(l.Ban())
	}
	if l.CountDenied() {
		share = share.WithCountDenied()
	}
	if share.Validate() != nil {
		return l // a whole limit is better than none
	}
	return share
}

// alike returns a limit of the same algorithm and name with another count and period.
func alike(l stint.Limit, count int64, period time.Duration) stint.Limit {
	made := stint.New(count, period).WithAlgorithm(l.Algorithm())
	if unit, zone := l.Calendar(); unit != "" {
		made, _ = stint.Parse(fmt.Sprintf("%d/%s in %s", count, unit, zone)) // an error leaves the zero limit, which is not valid
	}
	if l.FromFirst() {
		made = made.WithFromFirst()
	}
	if l.Algorithm().Takes(meter.Parts) {
		made = made.WithParts(l.Parts())
	}
	if l != l.WithName("") {
		made = made.WithName(l.Name())
	}
	return made
}

// unbanned returns the limit without its ban, and without counting what it denies.
func unbanned(l stint.Limit) stint.Limit {
	made := alike(l, l.Count(), l.Period())
	if l.Algorithm().Takes(meter.Burst) {
		made = made.WithBurst(l.Burst())
	}
	if l.Debt() > 0 {
		made = made.WithDebt(l.Debt())
	}
	if l.Relaxed() {
		made = made.WithRelaxed()
	}
	return made
}

// roomy returns a limit of the same identity with room for everything that was charged, as far as
// every store can count.
func roomy(share stint.Limit) stint.Limit {
	count := int64(1) << 50
	switch {
	case share.Algorithm().Takes(meter.Burst):
		return alike(share, share.Count(), share.Period()).WithBurst(share.Burst() + max(share.Burst(), share.Debt()))
	case share.Algorithm().KeepsLog():
		count = max(share.Count(), 1_000_000) // the most that a memstore keeps by default
	case share.Algorithm().Takes(meter.Parts) && share.Count() <= math.MaxInt32:
		count = math.MaxInt32 // a greater count would change the identity
	}
	return alike(share, count, share.Period())
}

// fineness returns by how much Share multiplies the period of a limit: the largest multiple of 1,
// 2, 3 and further numbers of processes that the limit allows.
func fineness(l stint.Limit) int64 {
	for _, k := range [...]int64{720_720, 27_720, 2520, 420, 60, 12} { // multiples of all numbers up to 16, 12, 10, 7, 6, 4
		if l.Count() <= math.MaxInt64/k && int64(l.Period()) <= math.MaxInt64/k {
			return k
		}
	}
	return 1
}
