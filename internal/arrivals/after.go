package arrivals

import (
	"math"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// A Limit is what a wait behind others needs to know of a limit.
type Limit interface {
	Count() int64
	Capacity() int64
	Period() time.Duration
	Calendar() (unit, zone string)
}

// An Algorithm is the algorithm of a Limit.
type Algorithm interface {
	Evenly() bool
	WearsOff() bool
	KeepsLog() bool
}

// An Outlook is when a limit lets the first units of a line pass, as the store said.
type Outlook struct {
	First time.Duration // the wait until they pass together
	Reset time.Duration // the wait until nothing is in use
	Edge  bool          // First is this limit's own wait, not that of another limit or of a ban
}

// After returns the least wait until the last of all units passes, if the first of them, as many as fits,
// pass as o says. It is exact for a single limit of algorithm gcra, and under limits with windows for
// multiples of the count.
func After(l Limit, by Algorithm, all, fits uint128.Int, o Outlook) time.Duration {
	first, rest := o.First, all.Sub(fits)
	unit, _ := l.Calendar()
	switch {
	case by.Evenly():
		return satmath.Duration(satmath.AddInt64(uint64(first), uint64(Units(l, all.Sub(uint128.From(uint64(l.Capacity())))))))
	case by.WearsOff() && !o.Edge:
		return 0 // what passes one by one has worn off in part by then
	case by.WearsOff(): // likewise, from the end of the window on
		first = min(first, o.Reset%l.Period())
	}
	if unit != "" { // windows of the calendar differ in length
		return first
	}
	windows := rest.Lo / uint64(l.Count())
	if rest.Hi != 0 {
		windows = math.MaxUint64
	}
	if windows > 0 && (by.WearsOff() || !by.KeepsLog() && (o.First == 0 || !o.Edge)) {
		windows-- // the first of them may end at any moment
	}
	return satmath.Duration(satmath.AddInt64(uint64(first), uint128.Mul(windows, uint64(l.Period())).Floor(1)))
}

// Units returns n·T of a limit, rounded down and at most the longest duration.
func Units(l Limit, n uint128.Int) time.Duration {
	if n.Hi != 0 {
		return satmath.Duration(math.MaxUint64)
	}
	return satmath.Duration(uint128.Mul(n.Lo, uint64(l.Period())).Floor(uint64(l.Count())))
}

// Longest returns the time in which all that the limit can hold comes back, rounded up.
func Longest(l Limit, by Algorithm) time.Duration {
	all := uint64(Units(l, uint128.From(uint64(l.Capacity()))))
	if unit, _ := l.Calendar(); unit != "" {
		return math.MaxInt64
	} else if by.Evenly() {
		return satmath.Duration(satmath.AddInt64(all, 1))
	}
	return satmath.Duration(satmath.AddInt64(all, uint64(l.Period())))
}
