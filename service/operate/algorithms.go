package operate

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// algorithms has the sentences about limits of each algorithm: what a limit means, and when a key
// has more room. Words in braces are replaced for a limit and a key; see told.
var algorithms = map[meter.Algorithm]struct{ means, pace string }{
	meter.GCRA: {
		"{capacity} at once, and one comes back each {each}.",
		"One comes back each {each}; all are back in {full}.",
	},
	meter.TokenBucketInterval: {
		"{capacity} at once, and {count} come back at each whole {period}.",
		"{count} come back at each whole {period}; all are back in {full}.",
	},
	meter.LeakyQueue: {
		"one starts each {each}; {capacity} have room, and those that come early wait.",
		"One starts each {each}, and those that were told to wait have started in {full}.",
	},
	meter.FixedWindow: {
		"{count} in each window of {period}, which begin by the clock.",
		"The window ends in {full}, and the count starts over.",
	},
	meter.SlidingLog: {
		"{count} in any {period}, to the request.",
		"Each counts for {period}; the newest stops counting in {full}.",
	},
	meter.SlidingCounter: {
		"{count} in any {period}, by two counts.",
		"What was counted in the last {period} wears off until {full} from now.",
	},
	meter.SlidingSubWindows: {
		"{count} in any {period}, by counts of {parts} parts.",
		"What was counted in the last {period} wears off until {full} from now.",
	},
}

// told replaces the words in braces for a limit, and for a key that is as if new after full.
func told(words string, l stint.Limit, full time.Duration) string {
	return strings.NewReplacer(
		"{capacity}", fmt.Sprint(l.Capacity()), "{count}", fmt.Sprint(l.Count()), "{parts}", fmt.Sprint(l.Parts()),
		"{period}", trimmed(l.Period()), "{each}", trimmed(l.Period()/time.Duration(l.Count())), "{full}", trimmed(full),
	).Replace(words)
}
