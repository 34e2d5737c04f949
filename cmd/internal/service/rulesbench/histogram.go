package main

import "time"

const (
	// step is how fine a histogram is, steps how many it has: durations beyond
	// count as the last.
	step, steps = 5 * time.Nanosecond, 1 << 15
)

// A histogram counts durations. It has no pointer and does not grow, so that
// keeping what was measured gives the collector nothing to do.
type histogram struct {
	counts [steps]uint32
	n      int
}

func (h *histogram) add(d time.Duration) {
	h.counts[min(d/step, steps-1)]++
	h.n++
}

// at returns a quantile.
func (h *histogram) at(q float64) time.Duration {
	left := int(q * float64(h.n))
	for i, n := range h.counts {
		if left -= int(n); left < 0 {
			return time.Duration(i) * step
		}
	}
	return steps * step
}
