package observe

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// mostCauses is how many causes get lines of their own in a period.
const mostCauses = 16

// repeats finds the first event of each cause in a period, which gets a line, and counts the
// others.
type repeats struct {
	mu    sync.Mutex
	times map[string]uint64 // by cause
}

// first reports whether this is the first event of a cause. If there is no room for the cause, the
// event counts under others.
func (r *repeats) first(cause, others string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times == nil {
		r.times = make(map[string]uint64)
	}
	if _, known := r.times[cause]; !known && len(r.times) >= mostCauses {
		cause = others
	}
	r.times[cause]++
	return r.times[cause] == 1
}

// sumUp ends a period, and calls say with how often each cause occurred again.
func (r *repeats) sumUp(say func(cause string, times uint64)) {
	r.mu.Lock()
	times := r.times
	r.times = nil
	r.mu.Unlock()
	var causes []string
	for cause, n := range times {
		if n > 1 {
			causes = append(causes, cause)
		}
	}
	slices.SortFunc(causes, func(a, b string) int { return cmp.Or(cmp.Compare(times[b], times[a]), strings.Compare(a, b)) })
	for _, cause := range causes {
		say(cause, times[cause]-1)
	}
}
