package stint

import (
	"cmp"
	"math"
	"time"

	"github.com/stint-dev/stint/internal/arrivals"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/internal/waitqueue"
	"github.com/stint-dev/stint/meter"
)

// terms is what waiting needs to know of the limits.
type terms struct {
	limits   []Limit
	capacity int64         // the least capacity of the limits
	drains   time.Duration // in which all that their buckets and queues can hold comes back, from the greatest debt
	queue    bool          // a leaky_queue is among them
	counts   bool          // a limit has count_denied
	bans     bool          // a denial begins a ban
}

func termsOf(limits []Limit) *terms {
	t := &terms{limits: limits}
	for i, l := range limits {
		if c := l.Capacity(); i == 0 || c < t.capacity {
			t.capacity = c
		}
		if l.spec.Algorithm.Takes(meter.Burst) {
			owes := arrivals.Units(l, uint128.From(uint64(cmp.Or(l.Debt(), l.Capacity()))))
			t.drains = max(t.drains, satmath.Duration(satmath.AddInt64(uint64(arrivals.Longest(l, l.Algorithm())), uint64(owes))))
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

// pace returns the pace of the queue; one that is not known if there are other limits.
func (t *terms) pace() waitqueue.Pace {
	if !t.alone() {
		return waitqueue.Pace{}
	}
	l := t.limits[0]
	return waitqueue.Pace{Name: l.name, Period: l.spec.Period, Count: l.spec.Count}
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
		if d := arrivals.Units(l, n); !found || d < least {
			least, found = d, true
		}
	}
	return least
}

// after returns the least wait until the last of all units passes, if the answer d is for the first of
// them, as many as fits: see [arrivals.After].
func (t *terms) after(all, fits uint128.Int, d *Decision) time.Duration {
	var least time.Duration
	o := arrivals.Outlook{First: time.Duration(d.RetryAfter), Reset: d.ResetAfter, Edge: len(t.limits) == 1 && !d.Banned}
	for i, l := range t.limits {
		if wait := arrivals.After(l, l.Algorithm(), all, fits, o); i == 0 || wait < least {
			least = wait
		}
	}
	return least
}
