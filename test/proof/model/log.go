package model

import (
	"math"
	"math/big"
)

// log is "sliding_log": every charge with its time.
type log struct {
	spec    Spec
	entries []entry // oldest first
}

// entry is the units that were charged at one instant; or, of those that were
// gathered, from one instant to another, held as if charged at the later.
type entry struct {
	from, at *big.Int
	units    int64
}

func (l *log) limitOf() Spec     { return l.spec }
func (l *log) compare(spec Spec) { l.spec = spec }
func (l *log) most() int64       { return l.spec.Count }

// counts says whether an entry made at an instant lies in (t − W, t].
func (l *log) counts(at, t *big.Int) bool {
	return sub(t, at).Cmp(big.NewInt(l.spec.Period)) < 0
}

// sum is the units in (t − W, t].
func (l *log) sum(t *big.Int) *big.Int {
	total := new(big.Int)
	for i := len(l.entries) - 1; i >= 0 && l.counts(l.entries[i].at, t); i-- {
		total.Add(total, big.NewInt(l.entries[i].units))
	}
	return total
}

// admits: the costs in (t − W, t] plus c are ≤ L.
func (l *log) admits(t *big.Int, c int64) bool {
	return add(l.sum(t), big.NewInt(c)).Cmp(big.NewInt(l.spec.Count)) <= 0
}

func (l *log) charge(t *big.Int, c int64, _ charging) receipt {
	l.drop(t)
	if n := len(l.entries); n > 0 && l.entries[n-1].at.Cmp(t) == 0 {
		l.entries[n-1].units = saturated(l.entries[n-1].units, c)
	} else {
		l.entries = append(l.entries, entry{t, t, c})
	}
	l.gather()
	return receipt{at: t}
}

// drop forgets what no longer counts.
func (l *log) drop(t *big.Int) {
	var kept []entry
	for _, e := range l.entries {
		if e.units > 0 && l.counts(e.at, t) {
			kept = append(kept, e)
		}
	}
	l.entries = kept
}

// split is the index of the newest entry that has units older than the newest
// Count of all; -1 if there is none.
func (l *log) split() (i int) {
	room := l.spec.Count
	for i := len(l.entries) - 1; i >= 0; i-- {
		if l.entries[i].units > room {
			return i
		}
		room -= l.entries[i].units
	}
	return -1
}

// gather keeps what is older than the newest Count units as one entry at its newest
// moment. While that counts, nothing passes, and once it does not, none of it would.
func (l *log) gather() {
	i := l.split()
	if i < 0 {
		return
	}
	all := entry{l.entries[0].from, l.entries[i].at, 0}
	for _, e := range l.entries[:i+1] {
		all.units = saturated(all.units, e.units)
	}
	room := int64(math.MaxInt64) // as much as is counted in all
	for _, e := range l.entries[i+1:] {
		room -= e.units
	}
	all.units = min(all.units, room)
	l.entries = append([]entry{all}, l.entries[i+1:]...)
}

// saturated is a + b, at most 2^63 − 1.
func saturated(a, b int64) int64 {
	return least(add(big.NewInt(a), big.NewInt(b)), maxInt64).Int64()
}

func (l *log) resetAfter(t *big.Int) *big.Int {
	l.drop(t)
	if len(l.entries) == 0 {
		return new(big.Int)
	}
	newest := l.entries[len(l.entries)-1]
	return sub(add(newest.at, big.NewInt(l.spec.Period)), t)
}

func (l *log) delay(*big.Int) *big.Int { return new(big.Int) }

// giveBack takes from the entry that the charge is in, while the charge itself
// would count.
func (l *log) giveBack(t *big.Int, r receipt, g int64) {
	if l.counts(r.at, t) {
		l.remove(t, g, func(e entry) bool { return e.from.Cmp(r.at) <= 0 && r.at.Cmp(e.at) <= 0 })
	}
}

func (l *log) refund(t *big.Int, c int64) {
	l.remove(t, c, func(entry) bool { return true })
}

// remove takes up to c units, newest first, from the entries of a choice.
func (l *log) remove(t *big.Int, c int64, choose func(entry) bool) {
	for i := len(l.entries) - 1; i >= 0; i-- {
		e := &l.entries[i]
		if choose(*e) && l.counts(e.at, t) {
			n := min(c, e.units)
			e.units -= n
			c -= n
		}
	}
	l.drop(t)
}
