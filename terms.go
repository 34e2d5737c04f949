package stint

import (
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/meter"
)

// terms are what waiting needs to know of the limits.
type terms struct {
	limits   []Limit
	capacity int64 // the least of the limits'
	queue    bool  // a leaky_queue is among them
	counts   bool  // a limit counts what it denies
}

func termsOf(limits []Limit) *terms {
	t := &terms{limits: limits}
	for i, l := range limits {
		if c := l.Capacity(); i == 0 || c < t.capacity {
			t.capacity = c
		}
		t.queue = t.queue || l.spec.Algorithm.Queues()
		t.counts = t.counts || l.spec.CountDenied
	}
	return t
}

// alone reports whether a leaky_queue is the only limit.
func (t *terms) alone() bool { return t.queue && len(t.limits) == 1 }

// pace returns how long units take under the queue, rounded up; nil if other
// limits are beside it.
func (t *terms) pace() func(units int64) time.Duration {
	if !t.alone() {
		return nil
	}
	l := t.limits[0]
	return func(units int64) time.Duration {
		return satmath.Duration(uint128.Mul(uint64(units), uint64(l.spec.Period)).Ceil(uint64(l.spec.Count)))
	}
}

// span returns n·T of the fastest bucket or queue among the limits, rounded
// down; 0 where none is.
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

// spanOf returns n·T, rounded down and held at the longest duration.
func spanOf(l Limit, n uint128.Int) time.Duration {
	if n.Hi != 0 {
		return satmath.Duration(^uint64(0))
	}
	return satmath.Duration(uint128.Mul(n.Lo, uint64(l.spec.Period)).Floor(uint64(l.spec.Count)))
}

// behind returns the least time that lies between two moments: that from which
// the first of all units may pass together, as many as fits, and that at which
// the last of all may, one after the other. It is exact for one limit of algorithm
// gcra, and for whole multiples of the count in the others.
func (t *terms) behind(all, fits uint128.Int, later bool) time.Duration {
	var least time.Duration
	for i, l := range t.limits {
		if d := l.behind(all, fits, later && len(t.limits) == 1); i == 0 || d < least {
			least = d
		}
	}
	return least
}

// behind is that of one limit. Later says that the first of the units may not
// pass yet, and that this limit is why.
func (l Limit) behind(all, fits uint128.Int, later bool) time.Duration {
	rest := all.Sub(fits)
	switch {
	case l.spec.Algorithm.Evenly():
		return spanOf(l, all.Sub(uint128.From(uint64(l.Capacity()))))
	case rest.Hi != 0 || l.spec.Calendar != meter.NoCalendar:
		return 0 // no window of the calendar is known to be as long as another
	}
	windows := rest.Lo / uint64(l.spec.Count)
	if windows > 0 && (l.spec.Algorithm.WearsOff() || !later && !l.spec.Algorithm.KeepsLog()) {
		windows-- // the first of them may end at any moment
	}
	return satmath.Duration(uint128.Mul(windows, uint64(l.spec.Period)).Floor(1))
}
