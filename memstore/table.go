package memstore

import (
	"iter"
	"math/bits"
	"time"
	"unsafe"

	"github.com/stint-dev/stint/meter"
)

// A table is the keys of one account in one shard: open addressing with linear
// probing over words without pointers. A slot is the key's hash and its state, or, if
// the state is not small (indirect), the reference of its block in the slab.
//
// It grows by segments, as in linear hashing: when there are more keys than the segments
// should hold, one segment is split, and a segment that fills up is rebuilt a little
// larger. Either moves about a thousand slots at most, and forgets idle keys.
//
// The shard's lock guards it. There may be one for each account in each shard, so
// it is kept to 64 bytes, and is made when it gets its first key.
type table struct {
	meter    *meter.Meter
	segments []segment
	cells    *[]uint64 // overflow: states shared by keys without a slot
	owner    *account
	at       uint32 // its index in the shard's roster
	open     uint32 // one more than the index of its open reservations in the shard, or 0
	keys     uint32
	width    uint8 // words of state in a slot
	stored   uint8 // inSlot, inBlock or growing
	aligned  bool
	numbered bool // the last word of a slot is the number of the limit its state drains by
}

// Where the states of a table are.
const (
	inSlot  = iota
	inBlock // in a block of the slab, which the slot refers to
	growing // in a block that grows: logs
)

func (t *table) indirect() bool { return t.stored != inSlot }
func (t *table) log() bool      { return t.stored == growing }

// plain reports whether a decision needs nothing but the words in a key's slot.
func (t *table) plain() bool { return t.stored == inSlot && !t.numbered && t.open == 0 }

type segment struct {
	slots []uint64
	size  int // slots there are
	used  int // slots taken
}

const (
	segmentKeys = 512 // on average, right after a round of splits
	maxSlotted  = 3   // words of state that live in a slot
	leastSlots  = 8

	// linger is how long an idle key keeps its slot while there is room. A busy key
	// of a fast limit is idle between any two requests, and would otherwise be
	// forgotten and made again over and over.
	linger = int64(10 * time.Second)
)

// full says when to rebuild: the load stays between 0.76 and 0.84, and each
// insert pays for moving about ten slots.
func (g *segment) full() bool { return g.used*32 >= g.size*27 }

func newTable(of shape) *table {
	t := &table{meter: of.meter, segments: noSegments, width: 1, aligned: of.meter.Aligned(), numbered: of.numbered}
	switch {
	case of.meter.Algorithm().KeepsLog():
		t.stored = growing
	case of.words > maxSlotted:
		t.stored = inBlock
	default:
		t.width = uint8(of.words)
	}
	return t
}

// noSegments are the segments of a table before its first key: one, without slots.
var noSegments = make([]segment, 1)

// block returns how many words to allocate for a state of the given number of words. A
// log gets some more, since it grows.
func (t *table) block(words int) int {
	if t.log() {
		return roomy(words)
	}
	return words
}

func (t *table) words() int { return int(t.width) }

func (t *table) stride() int { return 1 + t.words() }

// segment returns the segment that a hash belongs to.
func (t *table) segment(h uint64) *segment {
	n := uint64(len(t.segments))
	mask := uint64(1)<<t.depth() - 1
	i := h & (mask<<1 | 1)
	if i >= n {
		i = h & mask
	}
	return &t.segments[i]
}

// depth returns the number of whole doublings of the segments.
func (t *table) depth() int { return bits.Len(uint(len(t.segments))) - 1 }

// home returns where the probing for a hash begins.
func (g *segment) home(h uint64) int { return int(uint64(uint32(h>>20)) * uint64(g.size) >> 32) }

// find returns the state words of a key's slot, or nil.
func (t *table) find(h uint64) []uint64 {
	g := t.segment(h)
	if g.used == 0 {
		return nil
	}
	i, stride := g.home(h), t.stride()
	for {
		at := i * stride
		switch g.slots[at] {
		case h:
			return g.slots[at+1 : at+stride : at+stride]
		case 0:
			return nil
		}
		if i++; i == g.size {
			i = 0
		}
	}
}

// insert makes a slot for a key that has none and returns its state words, all
// zero. Slots found before may have moved.
func (t *table) insert(sh *shard, h uint64, now int64) []uint64 {
	if t.segments[0].size == 0 {
		t.segments = make([]segment, 1)
	}
	if g := t.segment(h); g.full() {
		t.rebuild(sh, g, now)
	}
	if int(t.keys) >= len(t.segments)*segmentKeys {
		t.split(sh, now)
	}
	t.keys++
	sh.keys++
	return t.segment(h).put(h, t.words())
}

// put takes the first free slot for a hash.
func (g *segment) put(h uint64, words int) []uint64 {
	i := g.home(h)
	for g.slots[i*(1+words)] != 0 {
		if i++; i == g.size {
			i = 0
		}
	}
	g.used++
	at := i * (1 + words)
	g.slots[at] = h
	return g.slots[at+1 : at+1+words : at+1+words]
}

// newSegment returns a segment with slots for the given number of keys and one more.
func newSegment(keys, words int) segment {
	stride := 1 + words
	least := max((keys+1)*32/27*11/10+2, leastSlots) * stride
	slots := append([]uint64(nil), make([]uint64, least)...) // rounded up to what is allocated anyway
	size := cap(slots) / stride
	return segment{slots: slots[:size*stride], size: size}
}

// rebuild moves the keys of a segment that are not idle to a new one.
func (t *table) rebuild(sh *shard, g *segment, now int64) {
	old := *g
	*g = newSegment(t.sweep(sh, old, now), t.words())
	for h, state := range t.slots(old) {
		copy(g.put(h, t.words()), state)
	}
}

// shrink rebuilds a segment that is mostly empty, once its keys have gone.
func (t *table) shrink(sh *shard, g *segment, now int64) {
	if g.size > 2*leastSlots && g.used*4 < g.size {
		t.rebuild(sh, g, now)
	}
}

// split divides the next segment in turn in two.
func (t *table) split(sh *shard, now int64) {
	n := len(t.segments)
	bit := uint64(1) << t.depth()
	from := n - int(bit)
	old := t.segments[from]
	live, high := t.sweep(sh, old, now), 0
	for h := range t.slots(old) {
		if h&bit != 0 {
			high++
		}
	}
	t.segments[from] = newSegment(live-high, t.words())
	t.segments = append(t.segments, newSegment(high, t.words()))
	for h, state := range t.slots(old) {
		copy(t.segment(h).put(h, t.words()), state)
	}
}

// sweep empties the slots of idle keys and returns how many are left. It
// breaks probing: the segment can then only be read slot by slot.
func (t *table) sweep(sh *shard, g segment, now int64) (live int) {
	sh.moves++
	stride := t.stride()
	for at := 0; at < len(g.slots); at += stride {
		switch {
		case g.slots[at] == 0:
		case t.idle(sh, g.slots[at+1:at+stride], now-linger):
			t.forget(sh, g.slots[at+1:at+stride])
			g.slots[at] = 0
			sh.evicted++
		default:
			live++
		}
	}
	return live
}

// idle reports whether a slot's key is as if never seen.
func (t *table) idle(sh *shard, slot []uint64, now int64) bool {
	if t.numbered {
		return t.drain(slot).Idle(slot, now)
	}
	return t.meter.Idle(t.state(sh, slot), now)
}

// forget gives back what a slot refers to, and counts the key off.
func (t *table) forget(sh *shard, slot []uint64) {
	if t.indirect() && slot[0] != 0 {
		sh.slabOf(slot[0]).release(slot[0])
	}
	t.keys--
	sh.keys--
}

// state returns the state that a slot holds or refers to.
func (t *table) state(sh *shard, slot []uint64) []uint64 {
	if !t.indirect() {
		return slot
	}
	return sh.block(slot[0])
}

// slots ranges over the slots that are taken.
func (t *table) slots(g segment) iter.Seq2[uint64, []uint64] {
	stride := t.stride()
	return func(yield func(uint64, []uint64) bool) {
		for at := 0; at < len(g.slots); at += stride {
			if h := g.slots[at]; h != 0 && !yield(h, g.slots[at+1:at+stride:at+stride]) {
				return
			}
		}
	}
}

// remove takes the key in slot i out of a segment, and moves later keys so that
// probing still finds them.
func (t *table) remove(sh *shard, g *segment, i int) {
	stride := t.stride()
	t.forget(sh, g.slots[i*stride+1:(i+1)*stride])
	sh.moves++
	g.used--
	gap := i
	for {
		if i++; i == g.size {
			i = 0
		}
		h := g.slots[i*stride]
		if h == 0 {
			break
		}
		// h may move to the gap unless its home lies behind the gap, cyclically
		if home := g.home(h); (i-home+g.size)%g.size >= (i-gap+g.size)%g.size {
			copy(g.slots[gap*stride:(gap+1)*stride], g.slots[i*stride:(i+1)*stride])
			gap = i
		}
	}
	clear(g.slots[gap*stride : (gap+1)*stride])
}

// delete forgets a key, if it has a slot.
func (t *table) delete(sh *shard, h uint64) {
	g := t.segment(h)
	if g.used == 0 {
		return
	}
	for i := g.home(h); g.slots[i*t.stride()] != 0; {
		if g.slots[i*t.stride()] == h {
			t.remove(sh, g, i)
			return
		}
		if i++; i == g.size {
			i = 0
		}
	}
}

// bytes returns what the table, its segments and cells take.
func (t *table) bytes() int64 {
	words := int(unsafe.Sizeof(*t)) / 8
	if t.cells != nil {
		words += 3 + cap(*t.cells)
	}
	for i := range t.segments {
		words += cap(t.segments[i].slots)
	}
	if t.segments[0].size == 0 {
		return int64(8 * words)
	}
	return int64(8*words) + int64(cap(t.segments))*int64(unsafe.Sizeof(segment{}))
}
