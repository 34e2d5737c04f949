package trial

import (
	"math"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/simulate"
)

// A Row is the result of requests under a limit, or under layers on one key. Waits and stretches
// are nanoseconds.
type Row struct {
	Requests int `json:"requests"`
	Tally
	// LongestWait is the longest delay, and LongestRetry the longest retry
	// after: -1 for never.
	LongestWait  int64 `json:"longest_wait"`
	LongestRetry int64 `json:"longest_retry"`
	// Most is the most units that one key started in any stretch of length MostIn. MostIn is set
	// before the first request.
	Most   int64 `json:"most"`
	MostIn int64 `json:"most_in"`

	started map[string]*started
}

// A Tally counts requests by their outcome.
type Tally struct {
	Passed  int `json:"passed"` // at once
	Delayed int `json:"delayed"`
	Denied  int `json:"denied"`
}

// Add counts a decision.
func (t *Tally) Add(d stint.Decision) {
	switch {
	case !d.Allowed:
		t.Denied++
	case d.Delay > 0:
		t.Delayed++
	default:
		t.Passed++
	}
}

// Add counts a request and its decision.
func (r *Row) Add(q simulate.Request, d stint.Decision) {
	r.Requests++
	r.Tally.Add(d)
	switch {
	case d.Allowed:
		r.LongestWait = max(r.LongestWait, int64(d.Delay))
		if q.Cost > 0 {
			r.start(q.Key, addUpTo(q.At, int64(d.Delay)), q.Cost)
		}
	case d.RetryAfter == stint.Never:
		r.LongestRetry = int64(stint.Never)
	case r.LongestRetry >= 0: // -1 for never is longer than any wait
		r.LongestRetry = max(r.LongestRetry, int64(d.RetryAfter))
	}
}

// started is what a key has started within the last stretch, in order of time, since a request that
// is admitted later starts no earlier.
type started struct {
	all []start
	sum int64
}

type start struct{ at, cost int64 }

func (r *Row) start(key string, at, cost int64) {
	s := r.started[key]
	if s == nil {
		if s = new(started); r.started == nil {
			r.started = make(map[string]*started)
		}
		r.started[key] = s
	}
	for len(s.all) > 0 && s.all[0].at <= at-r.MostIn { // first, since the sum of both might overflow
		s.sum -= s.all[0].cost
		s.all = s.all[1:]
	}
	s.all, s.sum = append(s.all, start{at, cost}), addUpTo(s.sum, cost)
	r.Most = max(r.Most, s.sum)
}

// addUpTo adds without wrapping.
func addUpTo(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
