package model

import (
	"math"
	"math/big"
)

// ledger is units with dates: of "sliding_log" every charge with its time, of
// "sliding_buckets" a count for every part of the window.
type ledger struct {
	dated
	entries []entry // oldest first
}

// entry is the units of one date; or, of those that were gathered, from one date to
// another, held as if charged at the later.
type entry struct {
	from, at *big.Int
	units    int64
}

// date is what a charge at t is kept under: in a log t itself; else the part that holds
// t, where part i covers [i·W/n, (i+1)·W/n) since the epoch.
func (l *ledger) date(t *big.Int) *big.Int {
	if l.spec.Kind == Log {
		return t
	}
	return floorDiv(mul(t, big.NewInt(l.spec.Parts)), big.NewInt(l.spec.Period))
}

// ends is the first whole instant at which a date no longer counts: an entry of a log W
// after it was made, a part W after its end.
func (l *ledger) ends(date *big.Int) *big.Int {
	period := big.NewInt(l.spec.Period)
	if l.spec.Kind == Log {
		return add(date, period)
	}
	return add(ceilDiv(mul(add(date, big.NewInt(1)), period), big.NewInt(l.spec.Parts)), period)
}

func (l *ledger) counts(date, t *big.Int) bool { return t.Cmp(l.ends(date)) < 0 }

// greatest is the most units of one date: of a part 2^32 − 1 for limits below 2^31.
func (l *ledger) greatest() *big.Int {
	if l.spec.Kind == Parts && l.spec.Count < 1<<31 {
		return big.NewInt(math.MaxUint32)
	}
	return maxInt64
}

// admits: the units that count plus c are ≤ L.
func (l *ledger) admits(t *big.Int, c int64) bool {
	sum := big.NewInt(c)
	for i := len(l.entries) - 1; i >= 0 && l.counts(l.entries[i].at, t); i-- {
		sum.Add(sum, big.NewInt(l.entries[i].units))
	}
	return sum.Cmp(big.NewInt(l.spec.Count)) <= 0
}

func (l *ledger) charge(t *big.Int, c int64, _ charging) receipt {
	l.drop(t)
	date := l.date(t)
	if n := len(l.entries); n == 0 || l.entries[n-1].at.Cmp(date) != 0 {
		l.entries = append(l.entries, entry{date, date, 0})
	}
	newest := &l.entries[len(l.entries)-1]
	newest.units = least(add(big.NewInt(newest.units), big.NewInt(c)), l.greatest()).Int64()
	if l.spec.Kind == Log {
		l.gather()
	}
	return receipt{at: t}
}

// drop forgets what no longer counts.
func (l *ledger) drop(t *big.Int) {
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
func (l *ledger) split() (i int) {
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
func (l *ledger) gather() {
	i := l.split()
	if i < 0 {
		return
	}
	sum, room := new(big.Int), new(big.Int).Set(maxInt64) // as much as is counted in all
	for k, e := range l.entries {
		if k <= i {
			sum.Add(sum, big.NewInt(e.units))
		} else {
			room.Sub(room, big.NewInt(e.units))
		}
	}
	all := entry{l.entries[0].from, l.entries[i].at, least(sum, room).Int64()}
	l.entries = append([]entry{all}, l.entries[i+1:]...)
}

func (l *ledger) resetAfter(t *big.Int) *big.Int {
	l.drop(t)
	if len(l.entries) == 0 {
		return new(big.Int)
	}
	return sub(l.ends(l.entries[len(l.entries)-1].at), t)
}

// giveBack takes from the entry that the charge is in, while the charge itself
// would count.
func (l *ledger) giveBack(t *big.Int, r receipt, g int64) {
	if date := l.date(r.at); l.counts(date, t) {
		l.remove(t, g, func(e entry) bool { return e.from.Cmp(date) <= 0 && date.Cmp(e.at) <= 0 })
	}
}

func (l *ledger) refund(t *big.Int, c int64) {
	l.remove(t, c, func(entry) bool { return true })
}

// remove takes up to c units, newest first, from the entries of a choice.
func (l *ledger) remove(t *big.Int, c int64, choose func(entry) bool) {
	for i := len(l.entries) - 1; i >= 0; i-- {
		if e := &l.entries[i]; choose(*e) && l.counts(e.at, t) {
			n := min(c, e.units)
			e.units -= n
			c -= n
		}
	}
	l.drop(t)
}
