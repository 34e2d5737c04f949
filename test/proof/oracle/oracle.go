// Package oracle judges histories: what callers saw of a limit, from a unit
// test, a race, a run with faults or a soak. Check says where more was admitted
// than the limit's envelope allows; Justified says which denials nothing that
// was admitted accounts for. A limiter must pass both: one that admits all
// fails the first, one that denies all fails the second.
//
// Both are sound: they report nothing about a history that an exact limiter
// could have made. They are complete when the times are exact. When callers run
// side by side and only know that the store decided between T and End, Check
// counts in a stretch only what was surely decided in it, and Justified excuses
// a denial by whatever may have been decided before it.
//
// A history is judged on settled costs: Settled makes one of what was reserved,
// and Admitted replays it. Justified looks at takes alone, since a denial is
// about what was charged by then. Check takes O(n log n) time for n events, and
// O(n) beyond the sort; Justified as much, times the number of calls that are
// open at once.
package oracle

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"

	"github.com/stint-dev/stint/test/proof/model"
)

// Event is one decision. Events without an End after T are exact, and those of equal T
// must be listed in the order in which they were decided.
type Event struct {
	T       int64 // ns since the epoch on the store's clock: of the decision, or the earliest it can have been made
	End     int64 // ns: the latest that it can have been made; 0 or T means exactly T
	Key     string
	Cost    int64 // units
	Allowed bool  // the cost was charged
	Delay   int64 // ns: leaky_queue's wait, when allowed
	Quantum int64 // ns that Delay was rounded up to a multiple of; 0 is 1

	// Elsewhere marks a denial that another layer made. This limit need not
	// justify it, but counts it if it counts denied requests.
	Elsewhere bool

	// Debt marks a charge that needs no room: what a settlement charges above
	// its reservation. Refund marks what an operator gave back, which widens the
	// envelope by as much.
	Debt, Refund bool
}

// last is the latest that the event can have been decided.
func (e Event) last() int64 { return max(e.T, e.End) }

// Violation is a stretch of time, or a denial, that no exact limiter could have
// produced.
type Violation struct {
	Key      string
	From, To int64  // ns: the stretch, both ends included
	What     string // what happened, and what may
}

// String says whose, when and what, in one line.
func (v Violation) String() string {
	return fmt.Sprintf("key %q, from %d to %d ns: %s", v.Key, v.From, v.To, v.What)
}

// Judge is Check and Justified together.
func Judge(spec model.Spec, events []Event, slack int64) []Violation {
	return append(Check(spec, events, slack), Justified(spec, events)...)
}

// Check holds every key's admitted events to the envelope of the limit's kind,
// plus slack units: 0 unless the run did what a published bound allows for
// (a loss of the store, a lease). Events may be in any order.
func Check(spec model.Spec, events []Event, slack int64) []Violation {
	var found []Violation
	for _, own := range byKey(events) {
		h := history{key: own[0].Key, slack: slack}
		for _, e := range own {
			switch {
			case e.Refund:
				h.slack += e.Cost
			case e.Allowed && e.Cost > 0 && !e.Debt:
				h.spans = append(h.spans, span{e.T, e.last(), e.Cost, e.Delay, max(e.Quantum, 1)})
			}
		}
		found = append(found, h.check(spec)...)
	}
	return found
}

// check applies the envelopes of the kind.
func (h history) check(spec model.Spec) []Violation {
	count, period := spec.Count, spec.Period
	switch spec.Kind {
	case model.GCRA:
		return h.underRate(spec.Burst, count, period)
	case model.Interval:
		return h.underRefills(spec.Burst, count, period)
	case model.Queue:
		return append(h.underQueue(spec.Burst, count, period), h.spaced(count, period)...)
	case model.Fixed:
		if spec.FromFirst {
			return h.underSliding(twice(count), period)
		}
		return h.underFixed(spec)
	case model.Log, model.Parts:
		return h.underSliding(big.NewInt(count), period)
	case model.Counter:
		more := int64(0)
		if spec.Relaxed {
			more = 1
		}
		below := twice(count)
		below.Add(below, big.NewInt(more-1)) // under 2L, relaxed one more
		h.slack += more
		rate := h.underRate(count, count, period)
		h.slack -= more
		return append(rate, h.underSliding(below, period)...)
	}
	panic(fmt.Sprintf("oracle: no kind %q", spec.Kind))
}

func twice(n int64) *big.Int { return new(big.Int).Lsh(big.NewInt(n), 1) }

// byKey returns the events of every key, in the order given; the keys in the
// order of their first event.
func byKey(events []Event) [][]Event {
	place := map[string]int{}
	var keys [][]Event
	for _, e := range events {
		i, seen := place[e.Key]
		if !seen {
			i = len(keys)
			place[e.Key] = i
			keys = append(keys, nil)
		}
		keys[i] = append(keys[i], e)
	}
	return keys
}

// span is an admitted cost: decided no earlier than lo, no later than hi.
type span struct {
	lo, hi, cost, delay, quantum int64
}

// history is what was admitted on one key.
type history struct {
	key   string
	spans []span
	slack int64
}

// violation reports a stretch.
func (h history) violation(from, to int64, admitted, bound *big.Int) Violation {
	return Violation{Key: h.key, From: from, To: to,
		What: fmt.Sprintf("%v units admitted, at most %v may be", admitted, bound)}
}

// settled returns the spans by their latest time, and for each the earliest
// time of it and of all that follow: spans i to j lie within
// [earliest[i], spans[j].hi], whatever the order they were decided in. With
// exact times, earliest[i] is the time of span i.
func (h history) settled() (spans []span, earliest []int64) {
	spans = slices.Clone(h.spans)
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.hi, b.hi) })
	earliest = make([]int64, len(spans))
	for i := len(spans) - 1; i >= 0; i-- {
		earliest[i] = spans[i].lo
		if i+1 < len(spans) {
			earliest[i] = min(earliest[i], earliest[i+1])
		}
	}
	return spans, earliest
}

// under holds the sum of every stretch of spans i to j to
//
//	sum · scale ≤ bound(j) + granted(to) − granted(from)
//
// where the stretch is [from, to]. With sums S up to and including a span, that
// is S(j)·scale − granted(to) − bound(j) ≤ the least, over all i ≤ j, of
// S(i−1)·scale − granted(from): one running minimum.
func (h history) under(scale int64, bound func(span) *big.Int, granted func(int64) *big.Int) []Violation {
	var found []Violation
	spans, earliest := h.settled()
	sum, low := new(big.Int), new(big.Int)
	from := int64(0)
	for i, s := range spans {
		start := new(big.Int).Mul(sum, big.NewInt(scale))
		start.Sub(start, granted(earliest[i]))
		if i == 0 || start.Cmp(low) < 0 {
			low, from = start, earliest[i]
		}
		sum.Add(sum, big.NewInt(s.cost))
		used := new(big.Int).Mul(sum, big.NewInt(scale))
		used.Sub(used, granted(s.hi)).Sub(used, low)
		if used.Cmp(bound(s)) > 0 {
			may := new(big.Int).Sub(granted(s.hi), granted(from))
			may.Add(may, bound(s))
			took := new(big.Int).Sub(may, bound(s))
			took.Add(took, used)
			unit := big.NewInt(scale)
			found = append(found, h.violation(from, s.hi, took.Div(took, unit), may.Div(may, unit)))
		}
	}
	return found
}

// plus is (a + b)·scale.
func plus(a, b, scale int64) *big.Int {
	sum := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
	return sum.Mul(sum, big.NewInt(scale))
}

// underRate: at most burst + d/T in any stretch d. Multiplied by the period,
// sum·W ≤ burst·W + d·L.
func (h history) underRate(burst, count, period int64) []Violation {
	bound := plus(burst, h.slack, period)
	return h.under(period,
		func(span) *big.Int { return bound },
		func(t int64) *big.Int { return new(big.Int).Mul(big.NewInt(t), big.NewInt(count)) })
}

// underRefills: at most burst, and count for every whole multiple of the period
// in the stretch after its begin.
func (h history) underRefills(burst, count, period int64) []Violation {
	bound := plus(burst, h.slack, 1)
	return h.under(1,
		func(span) *big.Int { return bound },
		func(t int64) *big.Int { return new(big.Int).Mul(big.NewInt(t/period), big.NewInt(count)) })
}

// spaced holds the starts of a queue apart: in any stretch from one start to
// another, all but the last to start have had their time. A delay is rounded up
// to a nanosecond, so the stretch may be one shorter.
func (h history) spaced(count, period int64) []Violation {
	starts := h
	starts.spans = nil
	exact, dearest := true, int64(0)
	for _, s := range h.spans {
		exact = exact && s.lo == s.hi
		dearest = max(dearest, s.cost)
		starts.spans = append(starts.spans, span{s.lo + s.delay, s.hi + s.delay, s.cost, 0, 1})
	}
	bound := func(last span) *big.Int {
		if !exact {
			last.cost = dearest // any of them may have been the last
		}
		may := plus(last.cost, h.slack, period)
		return may.Add(may, big.NewInt(count))
	}
	return starts.under(period, bound,
		func(t int64) *big.Int { return new(big.Int).Mul(big.NewInt(t), big.NewInt(count)) })
}

// underQueue: no request is let in that would make more than burst units wait:
// delay + (c − 1)·T ≤ burst·T. The delay was rounded up to its quantum.
func (h history) underQueue(burst, count, period int64) []Violation {
	var found []Violation
	for _, s := range h.spans {
		wait := big.NewInt(max(s.delay-s.quantum, 0))
		wait.Mul(wait, big.NewInt(count))
		room := plus(burst, h.slack, 1)
		room.Sub(room, big.NewInt(s.cost-1)).Mul(room, big.NewInt(period))
		if over := wait.Cmp(room); over > 0 || over == 0 && s.delay > 0 {
			found = append(found, Violation{Key: h.key, From: s.lo, To: s.hi,
				What: fmt.Sprintf("cost %d let in to wait %d ns, at most %d units may wait", s.cost, s.delay, burst)})
		}
	}
	return found
}

// underSliding: at most most units in any (t − period, t].
func (h history) underSliding(most *big.Int, period int64) []Violation {
	var found []Violation
	bound := new(big.Int).Add(most, big.NewInt(h.slack))
	spans, earliest := h.settled()
	sum, first := new(big.Int), 0
	for i, s := range spans {
		sum.Add(sum, big.NewInt(s.cost))
		for ; first <= i && earliest[first] <= s.hi-period; first++ {
			sum.Sub(sum, big.NewInt(spans[first].cost))
		}
		if sum.Cmp(bound) > 0 {
			found = append(found, h.violation(earliest[first], s.hi, new(big.Int).Set(sum), bound))
		}
	}
	return found
}

// underFixed: at most count in each window, of what was surely decided in it.
func (h history) underFixed(spec model.Spec) []Violation {
	var found []Violation
	bound := plus(spec.Count, h.slack, 1)
	spans := slices.Clone(h.spans)
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	sum, end := new(big.Int), new(big.Int)
	for _, s := range spans {
		if big.NewInt(s.lo).Cmp(end) >= 0 {
			_, end, _ = model.Window(spec, s.lo)
			sum = new(big.Int)
		}
		if big.NewInt(s.hi).Cmp(end) >= 0 {
			continue // may have been decided in the next window
		}
		sum.Add(sum, big.NewInt(s.cost))
		if sum.Cmp(bound) > 0 {
			found = append(found, h.violation(s.lo, s.hi, new(big.Int).Set(sum), bound))
		}
	}
	return found
}
