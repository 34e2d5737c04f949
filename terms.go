package stint

import "time"

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
		t.queue = t.queue || l.algorithm == LeakyQueue
		t.counts = t.counts || l.countDenied
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
		return duration(mul(uint64(units), uint64(l.period)).ceil(uint64(l.count)))
	}
}

// span returns n·T of the fastest bucket or queue among the limits, rounded
// down; 0 where none is.
func (t *terms) span(n uint128) time.Duration {
	var least time.Duration
	found := false
	for _, l := range t.limits {
		if l.algorithm != GCRA && l.algorithm != LeakyQueue {
			continue
		}
		if d := spanOf(l, n); !found || d < least {
			least, found = d, true
		}
	}
	return least
}

// spanOf returns n·T, rounded down and held at the longest duration.
func spanOf(l Limit, n uint128) time.Duration {
	if n.hi != 0 {
		return duration(^uint64(0))
	}
	return duration(mul(n.lo, uint64(l.period)).floor(uint64(l.count)))
}

// behind returns the least time that lies between two moments: that from which
// the first of all units may pass together, as many as fits, and that at which
// the last of all may, one after the other. It is exact for one limit of algorithm
// gcra, and for whole multiples of the count in the others.
func (t *terms) behind(all, fits uint128, later bool) time.Duration {
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
func (l Limit) behind(all, fits uint128, later bool) time.Duration {
	rest := all.sub(fits)
	switch {
	case l.algorithm == GCRA || l.algorithm == LeakyQueue:
		return spanOf(l, all.sub(uint128{0, uint64(l.Capacity())}))
	case rest.hi != 0 || l.calendar != calendarNone:
		return 0 // no window of the calendar is known to be as long as another
	}
	windows := rest.lo / uint64(l.count)
	if windows > 0 && (l.algorithm == SlidingCounter || !later && l.algorithm != SlidingLog) {
		windows-- // the first of them may end at any moment
	}
	return duration(mul(windows, uint64(l.period)).floor(1))
}
