package operate

import (
	"fmt"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// An algorithm is what operators are told of limits of one.
type algorithm struct {
	// means says what a limit is, whose period is written out.
	means func(l stint.Limit, period string) string
	// pace says when there is more room, where the key is as if never used after full.
	pace func(l stint.Limit, full time.Duration) string
}

var algorithms = map[meter.Algorithm]algorithm{
	meter.GCRA: {
		func(l stint.Limit, _ string) string {
			return fmt.Sprintf("%d at once, and one comes back each %v", l.Capacity(), plain(each(l)))
		},
		func(l stint.Limit, full time.Duration) string {
			return fmt.Sprintf("One comes back each %v; all are back in %v.", each(l), full)
		},
	},
	meter.TokenBucketInterval: {
		func(l stint.Limit, period string) string {
			return fmt.Sprintf("%d at once, and %d come back at each whole %s", l.Capacity(), l.Count(), period)
		},
		func(l stint.Limit, full time.Duration) string {
			return fmt.Sprintf("%d come back at each whole %v; all are back in %v.", l.Count(), short(l.Period()), full)
		},
	},
	meter.LeakyQueue: {
		func(l stint.Limit, _ string) string {
			return fmt.Sprintf("one starts each %v; %d have room, and those that come early wait", plain(each(l)), l.Capacity())
		},
		func(l stint.Limit, full time.Duration) string {
			return fmt.Sprintf("One starts each %v, and those that were told to wait have started in %v.", each(l), full)
		},
	},
	meter.FixedWindow: {
		func(l stint.Limit, period string) string {
			return fmt.Sprintf("%d in each window of %s, which begin by the clock", l.Count(), period)
		},
		func(_ stint.Limit, full time.Duration) string {
			return fmt.Sprintf("The window ends in %v, and the count starts over.", full)
		},
	},
	meter.SlidingLog: {
		func(l stint.Limit, period string) string {
			return fmt.Sprintf("%d in any %s, to the request", l.Count(), period)
		},
		func(l stint.Limit, full time.Duration) string {
			return fmt.Sprintf("Each counts for %v; the newest stops counting in %v.", short(l.Period()), full)
		},
	},
	meter.SlidingCounter: {
		func(l stint.Limit, period string) string {
			return fmt.Sprintf("%d in any %s, by two counts", l.Count(), period)
		},
		wearsOff,
	},
	meter.SlidingSubWindows: {
		func(l stint.Limit, period string) string {
			return fmt.Sprintf("%d in any %s, by counts of %d parts", l.Count(), period, l.Parts())
		},
		wearsOff,
	},
}

func wearsOff(l stint.Limit, full time.Duration) string {
	return fmt.Sprintf("What was counted in the last %v wears off until %v from now.", short(l.Period()), full)
}
