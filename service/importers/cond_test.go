package importers_test

import (
	"testing"

	"github.com/stint-dev/stint/service/importers"
)

// TestNoLooser: rate and burst must both be no greater, and windows of the same length.
func TestNoLooser(t *testing.T) {
	for _, c := range []struct {
		limit, than string
		want        bool
	}{
		{"10/s burst 21", "10/s burst 21", true},
		{"10/s burst 5", "10/s burst 21", true},
		{"10/s burst 22", "10/s burst 21", false},
		{"600/m burst 21", "10/s burst 21", true},
		{"601/m burst 21", "10/s burst 21", false},
		{"1000/s burst 21", "10/s burst 21", false},
		{"10/s burst 20 leaky_queue", "10/s burst 21", true},
		{"10/s burst 21 leaky_queue", "10/s burst 21", false},
		{"10/m", "100/m burst 9", false},
		{"5 in flight", "8 in flight", true},
		{"8 in flight", "5 in flight", false},
		{"5 in flight", "5/s", false},
		{"5/s burst 5", "5 in flight", false},
		{"50/m fixed_window", "60/m fixed_window", true},
		{"70/m fixed_window", "60/m fixed_window", false},
		{"10/7s fixed_window", "15/10s fixed_window", false},
		{"60/m fixed_window", "60/m sliding_counter", false},
		{"5 per month in UTC", "6 per month in UTC", true},
		{"no limit", "no limit", false},
	} {
		if got := importers.NoLooser(c.limit, c.than); got != c.want {
			t.Errorf("%s no looser than %s: %v", c.limit, c.than, got)
		}
	}
}
