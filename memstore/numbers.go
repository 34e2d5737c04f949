package memstore

import (
	"slices"

	"github.com/stint-dev/stint/meter"
)

// The state of a bucket or a queue drains by the parameters (count, burst, debt) of the
// limit that decided on it last. While an account has one limit, that is the one. When a
// second is bound, the tables are rebuilt with one more word in a slot: the number of the
// limit that the state drains by. A decision converts the state to its own limit
// (meter.Adopt), unless more is in use than that has room for. A charge without a decision
// leaves the limit of the state as it is, and a peek computes with it (meter.Through). Once
// all keys of an account drain by one limit, the word goes again. Windows, logs, counters
// and sliding_buckets drain by no parameters, and need none of this.

// renumber rebuilds the tables of an account if the limits that it has now need another
// shape: a word for the limit's number, or none any more. The store's lock is held.
func (s *Store) renumber(a *account) {
	to := shapeOf(a.all())
	if was := a.shape.Swap(&to); was == nil || was.words == to.words && was.numbered == to.numbered {
		return
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		if t := a.in(i); t != nil {
			t.reshape(sh, to)
		}
		sh.mu.Unlock()
	}
}

// A shape is what a slot of a table holds.
type shape struct {
	meter    *meter.Meter // what all states drain by, unless they are numbered
	words    int          // in a slot, without the hash
	numbered bool         // the last word is the number of the limit that the state drains by
}

// shapeOf returns the shape of tables for some limits of one identity.
func shapeOf(all []*limit) shape {
	of := shape{meter: all[0].meter, words: all[0].meter.Words()}
	if len(all) > 1 && of.meter.Drains() {
		for _, l := range all {
			of.words = max(of.words, l.meter.Words())
		}
		of.words, of.numbered = of.words+1, true
	}
	return of
}

func (t *table) shape() shape { return shape{t.meter, t.words(), t.numbered} }

// fill writes to a slot a state that drains by the limit of a number.
func (of shape) fill(slot, state []uint64, number uint64) {
	if copy(slot, state); of.numbered {
		clear(slot[min(len(state), of.words-1):])
		slot[of.words-1] = number
	}
}

// reshape moves all states of a table to slots of another shape.
func (t *table) reshape(sh *shard, to shape) {
	was := t.shape()
	if t.meter = to.meter; was.words == to.words && was.numbered == to.numbered {
		return
	}
	number := t.owner.numberOf(was.meter)
	move := func(slot, state []uint64) {
		n := number
		if was.numbered {
			n, state = state[len(state)-1], state[:len(state)-1]
		}
		to.fill(slot, state, n)
	}
	for i, g := range t.segments {
		if g.size == 0 {
			continue
		}
		next := newSegment(g.used, to.words)
		for h, state := range t.slots(g) {
			move(next.put(h, to.words), state)
		}
		t.segments[i] = next
	}
	if t.cells != nil {
		cells := make([]uint64, len(*t.cells)/was.words*to.words)
		for i := range len(cells) / to.words {
			at := i * to.words
			move(cells[at:at+to.words], t.cellAt(i))
		}
		*t.cells = cells
	}
	t.width, t.numbered = uint8(to.words), to.numbered
	sh.moves++
}

// numberOf returns the number of the limit whose meter is m, or 0.
func (a *account) numberOf(m *meter.Meter) uint64 {
	at := slices.IndexFunc(*a.limits.Load(), func(l *limit) bool { return l != nil && l.meter == m })
	return uint64(at + 1)
}

// number returns the number of the limit in a slot, or 0 if the table has none in its slots.
func (t *table) number(slot []uint64) uint64 {
	if !t.numbered {
		return 0
	}
	return slot[t.width-1]
}

// drain returns the meter that the state of a slot drains by.
func (t *table) drain(slot []uint64) *meter.Meter {
	if n := t.number(slot); n != 0 {
		return t.owner.of(n).meter
	}
	return t.meter
}

// foreign returns the meter that the state of a slot drains by, if its parameters differ
// from the limit's, else nil. It clears a state that is as if never seen.
func (t *table) foreign(l *limit, slot []uint64, at int64) *meter.Meter {
	n := t.number(slot)
	if n == l.number || n == 0 {
		return nil
	}
	old := t.owner.of(n).meter
	if old.SameNumbers(l.meter) {
		return nil
	}
	if old.Idle(slot, at) {
		clear(slot)
		return nil
	}
	return old
}

// adopt converts the state that a hash decides on to the limit of a decision, and
// reports whether the state drains by that now. If more is in use than the limit has room
// for, it does not, and nothing is written.
func (sh *shard) adopt(s *Store, t *table, l *limit, h uint64, slot []uint64, at int64) bool {
	if !t.numbered || slot[t.width-1] == l.number {
		return true
	}
	if n := t.number(slot); n != 0 && t.owner.of(n).meter.SameNumbers(l.meter) {
		slot[t.width-1] = l.number
		return true
	}
	if old := t.foreign(l, slot, at); old != nil && !l.meter.Adopt(slot[:t.width-1], old, at) {
		return false
	}
	slot[t.width-1] = l.number
	if open := sh.openOn(s, t, h); open != nil {
		sh.dropOpen(s, t, h, open) // what was reserved under the old limit gives nothing back
	}
	return true
}
