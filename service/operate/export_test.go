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

// Words says how much of a limit is used.
func Words(e *policy.RuleResult) string { return words(e) }

// Verdict is the first line of a story.
func Verdict(s *Story) string { return verdict(s) }
