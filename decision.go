package stint

import (
	"iter"
	"math/bits"
	"time"

	"github.com/stint-dev/stint/meter"
)

// A Decision answers whether a request may pass now. A denial is a Decision,
// not an error.
type Decision struct {
	// Limit is the most that could ever pass at one instant, in units.
	Limit int64
	// Remaining is how many requests of cost 1 would pass at this instant,
	// after this decision.
	Remaining int64
	// Taken is how many units were charged.
	Taken int64
	// RetryAfter is 0 when allowed; else the least wait after which the same
	// cost passes if nothing else arrives, or [Never].
	RetryAfter Wait
	// ResetAfter is the wait until the key is as if never seen.
	ResetAfter time.Duration
	// Delay is how long the caller must wait before it starts; 0 unless a
	// [LeakyQueue] is among the limits.
	Delay time.Duration
	// Tightest is the index of the limit that Limit and Remaining describe, among
	// the limits of the request, layer by layer. It is the limit that lets the fewest
	// more requests pass, the first of several. It is -1 if no limit was asked, as
	// when a store fails and its mode lets all pass.
	Tightest int
	// Denied says which limits denied, by the same index as Tightest.
	Denied LimitSet
	// Allowed reports whether the whole cost may pass now.
	Allowed bool
	// Banned reports whether a ban is among the reasons of the denial
	// ([Limit.WithBan], [Limiter.Block]).
	Banned bool

	// One field more than registers carry makes the compiler pass decisions in
	// memory, instead of taking them apart and putting them together in each call.
	_ [2]bool
}

// A Wait is a duration in nanoseconds, or [Never]. It has its own type so that an
// impossible request is not mistaken for a long wait.
type Wait int64

// Never is the wait of a request that can never pass: its cost is above the limit.
const Never = Wait(meter.Never)

// Duration returns the wait and true, or 0 and false for [Never].
func (w Wait) Duration() (time.Duration, bool) {
	if w == Never {
		return 0, false
	}
	return time.Duration(w), true
}

// Seconds returns the wait in whole seconds, rounded up, for Retry-After; -1 for
// [Never].
func (w Wait) Seconds() int64 {
	if w == Never {
		return -1
	}
	s := int64(w) / int64(time.Second)
	if int64(w)%int64(time.Second) != 0 {
		s++
	}
	return s
}

// String returns "never" or the duration.
func (w Wait) String() string {
	if w == Never {
		return "never"
	}
	return time.Duration(w).String()
}

// longer reports whether w is a longer wait than v; nothing is longer than
// [Never].
func (w Wait) longer(v Wait) bool {
	return v != Never && (w == Never || w > v)
}

// A LimitSet is a set of the limits of one request: bit i stands for limit i,
// counted over all its layers.
type LimitSet uint64

// MaxLimits is how many limits one request may have, over all its layers.
const MaxLimits = 64

// Has reports whether the limit is in the set.
func (m LimitSet) Has(limit int) bool { return m>>uint(limit)&1 == 1 }

// Limits returns the limits of the set in order.
func (m LimitSet) Limits() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := uint64(m); rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros64(rest)) {
				return
			}
		}
	}
}

// Set makes d the answer of a single limit to a request: passed with taken units
// charged, or denied. Stores call it with the answer of a [meter.Meter].
func (d *Decision) Set(m *meter.Meter, a meter.Answer, passed bool, taken int64) {
	// Field by field, since a literal would be built elsewhere and copied.
	d.Limit = m.Capacity()
	d.Remaining = a.Remaining
	d.RetryAfter = Wait(a.RetryAfter)
	d.ResetAfter = a.ResetAfter
	d.Delay = a.Delay
	d.Tightest = 0
	d.Allowed = passed
	d.Taken, d.Denied = 0, 1
	if passed {
		d.Taken, d.Denied = max(taken, 0), 0
	}
}

// Join adds the answer of one more limit of the request to d. It takes the longer waits,
// and Limit and Remaining of the answer with the smaller Remaining, or if they are equal
// with the smaller Tightest. Set own.Tightest to the index of the limit in the request.
// Allowed, Taken and Denied stay as they are in d: they belong to the request. Stores use
// it.
func (d *Decision) Join(own *Decision) {
	if own.Remaining < d.Remaining || own.Remaining == d.Remaining && own.Tightest < d.Tightest {
		d.Remaining, d.Limit, d.Tightest = own.Remaining, own.Limit, own.Tightest
	}
	if own.RetryAfter.longer(d.RetryAfter) {
		d.RetryAfter = own.RetryAfter
	}
	d.ResetAfter = max(d.ResetAfter, own.ResetAfter)
	d.Delay = max(d.Delay, own.Delay)
	if own.Banned {
		d.Banned = true
	}
}
