package memstore

import (
	"sync"
	"time"

	"github.com/stint-dev/stint/meter"
)

// A shard is the part of every table that belongs to some of the hashes, under
// one lock. All limits of one key are in one shard, so that a request for one
// key takes one lock however many limits it has.
type shard struct {
	mu    sync.Mutex
	last  int64  // the latest time decided at: no decision is made at an earlier one
	moves uint32 // changes whenever slots move
	index int

	keys, maxKeys int
	maxBytes      int64       // of the slab
	slab          slab        // has the states of keys that do not fit slots
	cells         slab        // has such states of overflow cells, a page for each
	slotted       roster      // of tables whose states are in their slots
	indirect      roster      // of tables whose states are in the slab
	opened        []*openKeys // table.open is an index here; nil where no table refers to it
	spare         *openKeys   // an empty one, for the next table that needs it
	reserved      uint64      // how many charges reservations have made
	blank         []uint64    // for unseen

	evicted, overflowed, merged uint64
	fullKeys, fullBytes         uint64 // how often there was no room

	_ [64]byte // neighbours do not share a cache line
}

// tick returns the time to decide at: now, or the latest time decided at if that is
// later, since another request took the lock first.
func (sh *shard) tick(now int64) int64 {
	if now < sh.last {
		return sh.last
	}
	sh.last = now
	return now
}

// shard returns the shard of a hash.
func (s *Store) shard(h uint64) uint64 { return h >> s.shift }

// at returns the time that a table decides at: the time of day for limits that follow
// it, else now.
func (s *Store) at(t *table, now int64) int64 {
	if t.aligned {
		return s.clock.aligned(now)
	}
	return now
}

// table returns the table of an account, and makes it if the shard has none.
func (sh *shard) table(a *account) *table {
	if t := a.in(sh.index); t != nil {
		return t
	}
	return sh.open(a)
}

// openOn returns the open reservations on the state that a hash decides on, or
// nil if there are none.
func (sh *shard) openOn(s *Store, t *table, h uint64) *meter.Reservations {
	if t.open == 0 {
		return nil
	}
	return sh.opened[t.open-1].on(s, t, h)
}

// open makes the table of an account.
func (sh *shard) open(a *account) *table {
	t := newTable(*a.shape.Load())
	r := sh.roster(t)
	t.owner, t.at = a, uint32(len(r.tables))
	r.tables = append(r.tables, t)
	a.tables.CompareAndSwap(nil, new(tables)) // another shard may be the first
	a.tables.Load()[sh.index] = t
	a.live.Add(1)
	return t
}

// drop releases a table that holds no keys.
func (sh *shard) drop(t *table) {
	if t.cells != nil {
		sh.dropCells(t)
	}
	sh.closeTable(t)
	r := sh.roster(t)
	last := len(r.tables) - 1
	r.tables[t.at] = r.tables[last]
	r.tables[t.at].at = t.at
	r.tables[last] = nil
	r.tables = r.tables[:last]
	if cap(r.tables) > 4*last+16 {
		r.tables = append(make([]*table, 0, 2*last), r.tables...)
	}
	t.owner.tables.Load()[sh.index] = nil
	t.owner.live.Add(-1)
	r.segment, r.slot = 0, 0
	sh.moves++
}

func (sh *shard) roster(t *table) *roster {
	if t.indirect() {
		return &sh.indirect
	}
	return &sh.slotted
}

// unseen returns the state of a key that the table has never seen: all zero. It is
// good until the next call.
func (sh *shard) unseen(t *table) []uint64 {
	words := max(t.meter.Words(), t.words())
	if len(sh.blank) < words {
		sh.blank = make([]uint64, words)
	}
	clear(sh.blank[:words])
	return sh.blank[:words]
}

// A roster is the tables of a shard, and how far the search for idle keys has
// come in them.
type roster struct {
	tables               []*table
	table, segment, slot int
	thorough             int64 // when the next thorough search is allowed
}

// A request that finds no room looks at a few keys, and evicts the idle ones. If that
// makes no room, it searches the shard thoroughly, but only once a second: else a flood
// of keys would hold the lock for most of the time. A thorough search passes twice over
// a shard with few keys: the second pass packs blocks of pages that the first has emptied.
const (
	probes        = 16
	thoroughLooks = 4096
	slotsToLook   = 8 // a search for n keys looks at 8n slots at most
	thoroughEvery = int64(time.Second)
)

// A seeker is the key that room is sought for. The search drops neither its table nor
// its slot.
type seeker struct {
	table *table
	hash  uint64 // 0 if the key has no slot yet
}

// roomFor reports whether one more key of a table may have a slot of its own: because
// the shard is below its bounds, or because it could evict idle keys.
func (sh *shard) roomFor(s *Store, t *table, now int64) bool {
	if sh.keys >= sh.maxKeys && !sh.makeRoom(s, seeker{table: t}, now, 0) {
		sh.fullKeys++
		return false
	}
	if !t.indirect() {
		return true
	}
	return sh.fits(s, seeker{table: t}, now, t.block(t.meter.Words()))
}

// fits reports whether the slab has room for a block, or could make room.
func (sh *shard) fits(s *Store, who seeker, now int64, words int) bool {
	if sh.slab.fits(words, sh.maxBytes) || sh.makeRoom(s, who, now, words) {
		return true
	}
	sh.fullBytes++
	return false
}

// makeRoom evicts until there is room for a key, and for a block of the given
// number of words if that is above 0.
func (sh *shard) makeRoom(s *Store, who seeker, now int64, words int) bool {
	for _, r := range [...]*roster{&sh.indirect, &sh.slotted} {
		if words > 0 && r == &sh.slotted {
			break // to evict keys with slotted states frees no bytes of the slab
		}
		sh.search(s, r, who, now, probes)
		if sh.hasRoom(words) {
			return true
		}
		if now >= r.thorough {
			r.thorough = now + thoroughEvery
			sh.search(s, r, who, now, min(thoroughLooks, 2*sh.keys+probes))
			if sh.hasRoom(words) {
				return true
			}
		}
	}
	return false
}

func (sh *shard) hasRoom(words int) bool {
	if words > 0 {
		return sh.slab.fits(words, sh.maxBytes)
	}
	return sh.keys < sh.maxKeys
}

// search looks at the next keys of a roster in turn and evicts the idle ones. If the slab
// is full, it packs the blocks of the others.
func (sh *shard) search(s *Store, r *roster, who seeker, now int64, keys int) {
	for slots := keys * slotsToLook; keys > 0 && slots > 0 && len(r.tables) > 0; slots-- {
		if r.table >= len(r.tables) {
			r.table, r.segment, r.slot = 0, 0, 0
		}
		t := r.tables[r.table]
		at := s.at(t, now)
		if r.segment >= len(t.segments) {
			slots -= sh.finish(s, r, t, who, at)
			continue
		}
		g := &t.segments[r.segment]
		if r.slot >= g.size {
			t.shrink(sh, g, at)
			r.segment, r.slot = r.segment+1, 0
			continue
		}
		i := r.slot * t.stride()
		h, slot := g.slots[i], g.slots[i+1:i+t.stride()]
		if h == 0 {
			r.slot++
			continue
		}
		keys--
		if t.idle(sh, slot, at) && (t != who.table || h != who.hash) {
			t.remove(sh, g, r.slot)
			sh.evicted++
			continue // another key may have moved here
		}
		if t.indirect() && sh.slab.bytes >= sh.maxBytes {
			sh.pack(t, slot, at)
		}
		r.slot++
	}
}

// finish ends the search in a table: it drops idle cells, and the table if nothing is
// left in it. It returns what that costs, in slots looked at.
func (sh *shard) finish(s *Store, r *roster, t *table, who seeker, at int64) (cost int) {
	if t.cells != nil && (t != who.table || who.hash == 0) {
		cost = s.cells / slotsToLook
		sh.dropIdleCells(t, at)
	}
	if t.keys == 0 && t.cells == nil && t != who.table {
		sh.drop(t) // the last table takes its turn
		return cost
	}
	r.table, r.segment, r.slot = r.table+1, 0, 0
	return cost
}

// pack moves a state to a smaller block if that is enough for it, or out of a page that
// is mostly free if another page has room.
func (sh *shard) pack(t *table, slot []uint64, now int64) {
	state := sh.block(slot[0])
	words := len(state)
	if t.log() {
		if need := roomy(t.meter.Room(state, now, 1)); 2*need <= words {
			words = need
		}
	}
	if words < len(state) || sh.slab.sparse(slot[0]) {
		sh.move(t, slot, words)
	}
}

// move gives a state another block.
func (sh *shard) move(t *table, slot []uint64, words int) {
	from := sh.slabOf(slot[0])
	ref, room := from.alloc(words)
	t.meter.Move(room, from.get(slot[0]))
	from.release(slot[0])
	slot[0] = ref
}

// slabOf returns the slab that has the block of a reference.
func (sh *shard) slabOf(ref uint64) *slab {
	if ref&apartBit != 0 {
		return &sh.cells
	}
	return &sh.slab
}

// block returns the block of a reference.
func (sh *shard) block(ref uint64) []uint64 { return sh.slabOf(ref).get(ref) }

// newSlot returns a slot for a key that has none: a new slot, with the state of the key's
// overflow cell, or that cell if there is no room.
func (sh *shard) newSlot(s *Store, t *table, h uint64, now, at int64) []uint64 {
	if !sh.roomFor(s, t, now) {
		return sh.cell(s, t, h)
	}
	slot := t.insert(sh, h, at)
	if t.indirect() {
		slot[0], _ = sh.slab.alloc(t.block(t.meter.Words()))
	}
	if t.cells != nil {
		sh.inherit(s, t, h, slot, at)
	}
	return slot
}

// grow gives a log the room that a charge needs, if the slab has it. If not, the charge
// merges the log's newest entries. It returns the key's slot, which may have moved.
func (sh *shard) grow(s *Store, t *table, h uint64, slot []uint64, now, cost int64) []uint64 {
	state := sh.block(slot[0])
	need := t.meter.Room(state, now, cost)
	if need <= len(state) {
		return slot
	}
	fits := sh.slab.bytes+sh.cells.bytes < sh.maxBytes || slot[0]&apartBit == 0 && sh.fits(s, seeker{t, h}, now, roomy(need))
	if found := t.find(h); found != nil {
		slot = found
	}
	if !fits {
		sh.merged++
		return slot
	}
	if len(sh.block(slot[0])) < need {
		sh.move(t, slot, roomy(need))
	}
	return slot
}
