package stint

import (
	"math"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/meter"
)

// terms is what waiting needs to know of the limits.
type terms struct {
	limits   []Limit
	capacity int64 // the least capacity of the limits
	queue    bool  // a leaky_queue is among them
	counts   bool  // a limit has count_denied
	bans     bool  // a denial begins a ban
}

func termsOf(limits []Limit) *terms {
	t := &terms{limits: limits}
	for i, l := range limits {
		if c := l.Capacity(); i == 0 || c < t.capacity {
			t.capacity = c
		}
		t.queue = t.queue || l.spec.Algorithm.Queues()
		t.counts = t.counts || l.spec.CountDenied
		t.bans = t.bans || l.Ban() > 0
	}
	return t
}

// careful reports whether to peek before a take that may be denied, since a denial changes
// something, or a pass may be delayed.
func (t *terms) careful() bool { return t.queue || t.counts || t.bans }

// refill returns how many units come back under every limit in a time d, 0 if that is not
// known.
func (t *terms) refill(d time.Duration) (least int64) {
	for i, l := range t.limits {
		if d <= 0 || !l.spec.Algorithm.Evenly() {
			return 0
		}
		units := min(uint128.Mul(uint64(d), uint64(l.spec.Count)).Floor(uint64(l.spec.Period)), math.MaxInt64)
		if i == 0 || int64(units) < least {
			least = int64(units)
		}
	}
	return least
}

// alone reports whether a leaky_queue is the only limit.
func (t *terms) alone() bool { return t.queue && len(t.limits) == 1 }

// pace returns a function that says how long units take under the queue, rounded up; nil if
// there are other limits.
func (t *terms) pace() func(units int64) time.Duration {
	if !t.alone() {
		return nil
	}
	l := t.limits[0]
	return func(units int64) time.Duration {
		return satmath.Duration(uint128.Mul(uint64(units), uint64(l.spec.Period)).Ceil(uint64(l.spec.Count)))
	}
}

// span returns n·T of the fastest bucket or queue among the limits, rounded down; 0 if there
// is none.
func (t *terms) span(n uint128.Int) time.Duration {
	var least time.Duration
	found := false
	for _, l := range t.limits {
		if !l.spec.Algorithm.Evenly() {
			continue
		}
		if d := spanOf(l, n); !found || d < least {
			least, found = d, true
		}
	}
	return least
}

// spanOf returns n·T rounded down, at most the longest duration.
func spanOf(l Limit, n uint128.Int) time.Duration {
	if n.Hi != 0 {
		return satmath.Duration(^uint64(0))
	}
	return satmath.Duration(uint128.Mul(n.Lo, uint64(l.spec.Period)).Floor(uint64(l.spec.Count)))
}

// behind returns the least time between two moments: when the first units, as many as
// fits, may pass together, and when the last of all units may pass. It is exact for a
// single limit of algorithm gcra, and under other algorithms for multiples of the count.
func (t *terms) behind(all, fits uint128.Int, later bool) time.Duration {
	var least time.Duration
	for i, l := range t.limits {
		if d := l.behind(all, fits, later && len(t.limits) == 1); i == 0 || d < least {
			least = d
		}
	}
	return least
}

// behind is terms.behind for one limit. later says that this limit does not let the first
// units pass yet.
func (l Limit) behind(all, fits uint128.Int, later bool) time.Duration {
	rest := all.Sub(fits)
	switch {
	case l.spec.Algorithm.Evenly():
		return spanOf(l, all.Sub(uint128.From(uint64(l.Capacity()))))
	case rest.Hi != 0 || l.spec.Calendar != meter.NoCalendar:
		return 0 // windows of the calendar differ in length
	}
	windows := rest.Lo / uint64(l.spec.Count)
	if windows > 0 && (l.spec.Algorithm.WearsOff() || !later && !l.spec.Algorithm.KeepsLog()) {
		windows-- // the first of them may end at any moment
	}
	return satmath.Duration(uint128.Mul(windows, uint64(l.spec.Period)).Floor(1))
}
