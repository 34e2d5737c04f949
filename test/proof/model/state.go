package model

import (
	"fmt"
	"math"
	"math/big"
)

// state is one key under one limit. Instants and durations are nanoseconds.
// They are big integers, for a wait may end after the last int64 instant.
type state interface {
	// limitOf is the limit by whose numbers the state drains; of a state of units
	// with dates, the one that looked at it last.
	limitOf() Spec
	// compare has another limit look at a state of units with dates.
	compare(Spec)
	// most is the greatest cost that could ever pass at one instant.
	most() int64
	// admits says whether cost c, at least 1, has room at t.
	admits(t *big.Int, c int64) bool
	// charge adds c at t, room or not.
	charge(t *big.Int, c int64, how charging) receipt
	// resetAfter is the wait from t until the key is as if never seen.
	resetAfter(t *big.Int) *big.Int
	// delay is the wait from t until a request admitted at t starts.
	delay(t *big.Int) *big.Int
	// giveBack makes the state what it would be had an earlier charge been g
	// units less, with every other decision as it fell.
	giveBack(t *big.Int, r receipt, g int64)
	// clone returns a copy that changes by itself.
	clone() state
	// refund removes up to c of what still counts, newest first.
	refund(t *big.Int, c int64)
}

// dated is what states of units with dates have in common: any limit may look at them.
type dated struct{ spec Spec }

func (d *dated) limitOf() Spec           { return d.spec }
func (d *dated) compare(spec Spec)       { d.spec = spec }
func (d *dated) most() int64             { return d.spec.Count }
func (d *dated) delay(*big.Int) *big.Int { return new(big.Int) }

// receipt is what must be known of a charge to give some of it back.
type receipt struct {
	at     *big.Int // when it was made
	act    int      // where it stands in the history of a bucket or queue
	term   int      // of which history that is
	window *big.Int // when the window began that it went to, of those from a first request
}

// fresh returns the state of a key that was never seen.
func fresh(spec Spec) state {
	switch spec.Kind {
	case GCRA:
		return &bucket{spec: spec, tat: new(big.Rat)}
	case Queue:
		return &queue{bucket{spec: spec, tat: new(big.Rat)}}
	case Interval:
		return &interval{spec: spec, missing: new(big.Int), index: new(big.Int)}
	case Fixed:
		if spec.FromFirst {
			return &fromFirst{dated: dated{spec}, begin: new(big.Int), used: new(big.Int)}
		}
		return &fixed{dated: dated{spec}, windows: windowsOf(spec), used: new(big.Int), index: new(big.Int)}
	case Log, Parts:
		return &ledger{dated: dated{spec}}
	case Counter:
		return &counter{dated: dated{spec}, index: new(big.Int), cur: new(big.Int), prev: new(big.Int)}
	}
	panic(fmt.Sprintf("model: no kind %q", spec.Kind))
}

// remaining is the greatest n that s admits at t.
func remaining(s state, t *big.Int) int64 {
	return greatest(s.most(), func(n int64) bool { return s.admits(t, n) })
}

// greatest is the most n that passes, from 0 to a bound, found by halving: whatever is
// less than one that passes does too.
func greatest(bound int64, passes func(n int64) bool) int64 {
	yes, no := int64(0), bound // nothing above no passes
	for yes < no {
		mid := no - (no-yes)/2
		if passes(mid) {
			yes = mid
		} else {
			no = mid - 1
		}
	}
	return yes
}

// leastWait is the least whole number of nanoseconds w such that s, if nothing
// else arrives, admits c at t + w; nil when it never does. No kind takes back
// by waiting what it admits, so the search may halve.
func leastWait(s state, t *big.Int, c int64) *big.Int {
	if s.admits(t, c) {
		return new(big.Int)
	}
	if c > s.most() {
		return nil
	}
	no, yes := new(big.Int), s.resetAfter(t)
	if !s.admits(add(t, yes), c) {
		panic("model: a fresh key denies a cost within the limit")
	}
	return first(no, yes, func(w *big.Int) bool { return s.admits(add(t, w), c) })
}

// first is the least above no, at most yes, for which something is so, found by halving:
// it is not so for no, and once it is so it stays.
func first(no, yes *big.Int, so func(*big.Int) bool) *big.Int {
	for add(no, big.NewInt(1)).Cmp(yes) < 0 {
		mid := add(no, yes)
		mid.Rsh(mid, 1)
		if so(mid) {
			yes = mid
		} else {
			no = mid
		}
	}
	return yes
}

// The arithmetic below allocates its results and leaves its arguments alone.

var maxInt64 = big.NewInt(math.MaxInt64)

func add(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }
func sub(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
func mul(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// least is the smaller of a and b.
func least(a, b *big.Int) *big.Int {
	if a.Cmp(b) <= 0 {
		return new(big.Int).Set(a)
	}
	return new(big.Int).Set(b)
}

// most is the larger of a and b.
func most(a, b *big.Int) *big.Int {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}

// lessUpTo is a − b, or 0 when that is below 0.
func lessUpTo(a, b *big.Int) *big.Int {
	d := sub(a, b)
	if d.Sign() < 0 {
		return new(big.Int)
	}
	return d
}

// floorDiv is a / b rounded down, for b above 0.
func floorDiv(a, b *big.Int) *big.Int {
	return new(big.Int).Div(a, b) // Euclidean: rounds down for a positive divisor
}

// ceilDiv is a / b rounded up, for b above 0.
func ceilDiv(a, b *big.Int) *big.Int {
	q := floorDiv(new(big.Int).Neg(a), b)
	return q.Neg(q)
}

// ceil is r rounded up to a whole number.
func ceil(r *big.Rat) *big.Int { return ceilDiv(r.Num(), r.Denom()) }

// whole is n as a rational.
func whole(n *big.Int) *big.Rat { return new(big.Rat).SetInt(n) }

// ratio is a / b.
func ratio(a, b int64) *big.Rat { return big.NewRat(a, b) }

// times is n·r.
func times(n int64, r *big.Rat) *big.Rat { return new(big.Rat).Mul(ratio(n, 1), r) }
