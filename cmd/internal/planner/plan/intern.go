package plan

import (
	"bytes"
	"math/bits"
)

// clients gives each key a dense number, in the order in which keys are first
// seen, so that state by client is a slice. It compares keys whole: two keys
// never share a number.
type clients struct {
	slots  []slot // a power of two of them, at most 3/4 full
	places []span // of each key, by number
	arena  [][]byte
	room   []byte // what is free of the last chunk of the arena
}

// A slot holds a number plus one, 0 while it is free, and as much of the hash
// as fits beside it.
type slot struct{ tag, number uint32 }

// A span is where a key is in the arena.
type span struct{ chunk, start, length uint32 }

// arenaChunk is how many bytes of keys are taken from the heap at a time.
const arenaChunk = 1 << 20

func newClients() *clients { return &clients{slots: make([]slot, 1<<10)} }

// len returns how many keys there are.
func (c *clients) len() int { return len(c.places) }

// key returns the key of a number.
func (c *clients) key(id uint32) []byte {
	p := c.places[id]
	return c.arena[p.chunk][p.start : p.start+p.length]
}

// number returns the number of a key, a new one if it has none.
func (c *clients) number(hash uint64, key []byte) (id uint32, fresh bool) {
	mask := uint64(len(c.slots) - 1)
	tag := uint32(hash >> 32)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &c.slots[i]
		if s.number == 0 {
			break
		}
		if s.tag == tag && bytes.Equal(c.key(s.number-1), key) {
			return s.number - 1, false
		}
	}
	if len(c.places)*4 >= len(c.slots)*3 {
		c.grow()
	}
	id = uint32(len(c.places))
	c.keep(key)
	c.insert(hash, id)
	return id, true
}

func (c *clients) insert(hash uint64, id uint32) {
	mask := uint64(len(c.slots) - 1)
	i := hash & mask
	for c.slots[i].number != 0 {
		i = (i + 1) & mask
	}
	c.slots[i] = slot{uint32(hash >> 32), id + 1}
}

// grow doubles the table. Keys are hashed again: slots hold but half of it.
func (c *clients) grow() {
	c.slots = make([]slot, 2*len(c.slots))
	for id := range c.places {
		c.insert(hashKey(c.key(uint32(id))), uint32(id))
	}
}

func (c *clients) keep(key []byte) {
	if len(c.arena) == 0 || len(key) > len(c.room) {
		c.room = make([]byte, max(arenaChunk, len(key)))
		c.arena = append(c.arena, c.room)
	}
	chunk := c.arena[len(c.arena)-1]
	c.places = append(c.places, span{uint32(len(c.arena) - 1), uint32(len(chunk) - len(c.room)), uint32(len(key))})
	c.room = c.room[copy(c.room, key):]
}

// bytes returns about how much memory the keys and their numbers take.
func (c *clients) bytes() int {
	n := len(c.slots)*8 + cap(c.places)*12
	for _, chunk := range c.arena {
		n += len(chunk)
	}
	return n
}

// hashKey is the same on every run: the numbers of keys do not depend on it,
// but how long a run takes should not be a matter of luck.
func hashKey(key []byte) uint64 {
	h := uint64(len(key)) * 0x9e3779b97f4a7c15
	for len(key) >= 8 {
		h = mix(h ^ word(key))
		key = key[8:]
	}
	var rest uint64
	for i, b := range key {
		rest |= uint64(b) << (8 * i)
	}
	return mix(h ^ rest)
}

func word(b []byte) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	return hi ^ lo
}
