package memstore

import "sync"

// A shard is the part of every table that belongs to some of the hashes, under
// one lock. All limits of one key are in one shard, so that a request for one
// key takes one lock however many limits it has.
type shard struct {
	mu    sync.Mutex
	last  int64  // the latest time decided at: time never goes back here
	moves uint32 // changes whenever slots move
	index int

	keys, maxKeys int
	maxBytes      int64 // of the slab
	slab          slab
	cursor        cursor
	denied        *topDenied
	unlooked      uint64 // denials since the last that was looked at
	skip          int32  // denials until the next that is
	blank         []uint64

	evicted, overflowed, merged uint64

	_ [64]byte // neighbours do not share a cache line
}

// tick returns the time to decide at: now, or the latest time seen here where
// another request was faster to the lock.
func (sh *shard) tick(now int64) int64 {
	if now < sh.last {
		return sh.last
	}
	sh.last = now
	return now
}

// unseen returns a state of that table that is all zero, good until the next
// call.
func (sh *shard) unseen(t *table) []uint64 {
	words := t.meter.Words()
	if len(sh.blank) < words {
		sh.blank = make([]uint64, words)
	}
	clear(sh.blank[:words])
	return sh.blank[:words]
}

// A cursor is how far the search for keys to evict has come.
type cursor struct{ limit, segment, slot int }

// evictions is how many slots a request without a place looks through.
const evictions = 16

// roomFor reports whether one more key may have a place of its own: under the
// bound, or by evicting keys that are as if never seen.
func (sh *shard) roomFor(s *Store, t *table, now int64) bool {
	if t.indirect && sh.slab.bytes >= sh.maxBytes {
		return false
	}
	return sh.keys < sh.maxKeys || sh.evict(s, now)
}

func (sh *shard) evict(s *Store, now int64) bool {
	limits, c := s.all(), &sh.cursor
	freed := false
	for range evictions {
		if c.limit >= len(limits) {
			*c = cursor{}
		}
		t := &limits[c.limit].tables[sh.index]
		if c.segment >= len(t.segments) {
			*c = cursor{limit: c.limit + 1}
			continue
		}
		g := &t.segments[c.segment]
		if c.slot >= g.size {
			c.segment, c.slot = c.segment+1, 0
			continue
		}
		at := c.slot * t.stride()
		if g.slots[at] != 0 && t.idle(sh, g.slots[at+1:at+t.stride()], s.at(t, now)) {
			t.remove(sh, g, c.slot)
			sh.evicted++
			freed = true
			continue // another key may have moved here
		}
		c.slot++
	}
	return freed
}

// place returns the slot of a key that has none yet: a new one, which takes
// over what its overflow cell holds, or that cell where there is no room.
func (sh *shard) place(s *Store, t *table, h uint64, now, at int64) []uint64 {
	if !sh.roomFor(s, t, now) {
		return sh.cell(s, t, h)
	}
	slot := t.insert(sh, h, at)
	if t.indirect {
		slot[0], _ = sh.slab.alloc(t.block(t.meter.Words()))
	}
	if t.cells != nil {
		sh.inherit(s, t, h, slot, at)
	}
	return slot
}

// grow gives a log the room that a charge needs, if there is any: without, its
// newest entries are merged.
func (sh *shard) grow(t *table, slot []uint64, now, cost int64) {
	state := sh.slab.get(slot[0])
	need := t.meter.Room(state, now, cost)
	if need <= len(state) {
		return
	}
	if sh.slab.bytes >= sh.maxBytes {
		sh.merged++
		return
	}
	ref, room := sh.slab.alloc(roomy(need))
	t.meter.Move(room, state)
	sh.slab.release(slot[0])
	slot[0] = ref
}
