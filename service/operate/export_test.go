package operate

import (
	"time"

	"github.com/stint-dev/stint/policy"
)

// Given returns what a reset gave back of limits, and how much of each would count still
// after a time.
func Given(limits []policy.RuleResult) func(after time.Duration) []int64 {
	all := chargesOf(limits)
	return func(after time.Duration) []int64 {
		var counts []int64
		for i := range all {
			counts = append(counts, all[i].now(after))
		}
		return counts
	}
}
