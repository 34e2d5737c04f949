package model

import "math/big"

// log is "sliding_log": every charge with its time.
type log struct {
	spec    Spec
	entries []entry // oldest first, at most Count units in all
}

// entry is the units that were charged at one instant.
type entry struct {
	at    *big.Int
	units int64
}

func (l *log) limitOf() Spec { return l.spec }
func (l *log) most() int64   { return l.spec.Count }

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

func (l *log) charge(t *big.Int, c int64) receipt {
	if c > 0 {
		l.entries = append(l.entries, entry{t, c})
	}
	l.trim(t)
	return receipt{at: t}
}

// trim drops what no longer counts, and keeps the newest Count units of the
// rest.
func (l *log) trim(t *big.Int) {
	var kept []entry
	room := l.spec.Count
	for i := len(l.entries) - 1; i >= 0; i-- {
		e := l.entries[i]
		e.units = min(e.units, room)
		if e.units > 0 && l.counts(e.at, t) {
			kept = append(kept, e)
			room -= e.units
		}
	}
	l.entries = nil
	for i := len(kept) - 1; i >= 0; i-- {
		l.entries = append(l.entries, kept[i])
	}
}

func (l *log) resetAfter(t *big.Int) *big.Int {
	l.trim(t)
	if len(l.entries) == 0 {
		return new(big.Int)
	}
	newest := l.entries[len(l.entries)-1]
	return sub(add(newest.at, big.NewInt(l.spec.Period)), t)
}

func (l *log) delay(*big.Int) *big.Int { return new(big.Int) }

func (l *log) giveBack(t *big.Int, r receipt, g int64) {
	l.remove(t, g, func(e entry) bool { return e.at.Cmp(r.at) == 0 })
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
	l.trim(t)
}

func (l *log) become(t *big.Int, to Spec) state {
	if to.Period != l.spec.Period {
		return nil
	}
	changed := &log{spec: to, entries: l.entries}
	changed.trim(t)
	return changed
}
