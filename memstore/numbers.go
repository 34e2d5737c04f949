package memstore

import (
	"slices"

	"github.com/stint-dev/stint/meter"
)

// A bucket or a queue drains by numbers, its count, burst and debt, that its state has. While
// an account has one limit, those are known. When a second is bound, its tables are
// rebuilt with one word more in a slot: the number of the limit whose numbers the state
// has. A decision puts its own in force (meter.Adopt), unless more is in use than they
// have room for; whatever charges without deciding goes by those that the state has; a
// look sees the state drain as it does (meter.Through). Where all keys of an account
// have come back to one limit, the word goes again. What has no numbers (windows, logs,
// counters, parts) needs none of this.

// renumber rebuilds the tables of an account for the limits that it has now, if they
// need a word for the numbers, or none any more. The store's lock is held.
func (s *Store) renumber(a *account) {
	to := shapeOf(a.all())
	if was := a.shape.Swap(&to); was == nil || was.words == to.words && was.numbered == to.numbered {
		return
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		if t := a.tables[i]; t != nil {
			t.reshape(sh, to)
		}
		sh.mu.Unlock()
	}
}

// A shape is what a slot of a table holds.
type shape struct {
	meter    *meter.Meter // of all states, unless they are numbered
	words    int          // beside the hash
	numbered bool         // the last word is the number of the limit whose numbers it has
}

// shapeOf returns that of tables for some limits of one identity.
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

// fill gives a slot a state that has the numbers of a limit.
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

// numberOf returns the number of the limit that has a meter, 0 if none has.
func (a *account) numberOf(m *meter.Meter) uint64 {
	at := slices.IndexFunc(*a.limits.Load(), func(l *limit) bool { return l != nil && l.meter == m })
	return uint64(at + 1)
}

// number returns the number that a slot says; 0 where none does.
func (t *table) number(slot []uint64) uint64 {
	if !t.numbered {
		return 0
	}
	return slot[t.width-1]
}

// drain returns the meter whose numbers the state of a slot has.
func (t *table) drain(slot []uint64) *meter.Meter {
	if n := t.number(slot); n != 0 {
		return t.owner.of(n).meter
	}
	return t.meter
}

// foreign returns the meter whose numbers the state of a slot has, if they are others
// than those of a limit, else nil. A state that is as if never seen has none.
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

// putInForce has a decision put the numbers of its limit in force on the state that a
// hash decides on, and reports whether they are. Not so if more is in use than they
// have room for: then nothing is written.
func (sh *shard) putInForce(s *Store, t *table, l *limit, h uint64, slot []uint64, at int64) bool {
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
		sh.dropOpen(s, t, h, open) // it gives nothing back
	}
	return true
}
