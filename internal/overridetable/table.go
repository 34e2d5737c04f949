// Package overridetable holds customers' own limits by the million: a number
// for each (rule, key), without a pointer that the garbage collector would have
// to follow.
//
// Keys are known by a hash of 64 bits with a secret seed: of ten million, the
// chance that a key without a number finds one is 5 in 10^13 a lookup.
package overridetable

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
)

// None is the number of a key that has none.
const None = 0

// shards bounds how much is copied at once when the table grows, and lets
// writers work beside each other.
const shards = 256

// A Table maps rules and keys to numbers above 0. The zero value is not ready:
// call New. Lookups take no lock and may run beside changes.
//
// Price: a lookup reads one line of memory, and in one case of ten at most the
// next; of a table larger than the processor's caches, that line is most of the
// time. A slot takes 12.8 bytes, and between 52 and 65 % of the slots are in use
// while a table only grows.
type Table struct {
	seed  maphash.Seed
	shard [shards]shard
}

type shard struct {
	slots atomic.Pointer[slots]
	mu    sync.Mutex // of writers
	used  int        // slots with a hash, in use or not
	live  int        // slots with a number
}

// slots is open addressing over buckets, which are a line of memory each. A hash
// is written after its number and never replaced by another, so that a reader
// without a lock finds the number of the hash that it saw, or None.
type slots []bucket

// inBucket is how many slots a bucket has.
const inBucket = 5

type bucket struct {
	hashes  [inBucket]atomic.Uint64
	numbers [inBucket]atomic.Uint32
	_       uint32
}

// New returns an empty table.
func New() *Table { return &Table{seed: maphash.MakeSeed()} }

// hash returns the hash of a key, never 0.
func (t *Table) hash(rule, key string) uint64 {
	h := maphash.String(t.seed, key) ^ bits.RotateLeft64(maphash.String(t.seed, rule)*0x9e3779b97f4a7c15, 29)
	return h | 1<<63
}

// find returns the slot of a hash, or the free one where it would be.
func (s slots) find(h uint64) (hash *atomic.Uint64, number *atomic.Uint32) {
	start, _ := bits.Mul64(h<<9, uint64(len(s)))
	for b := int(start); ; {
		for i := range s[b].hashes {
			if at := s[b].hashes[i].Load(); at == h || at == 0 {
				return &s[b].hashes[i], &s[b].numbers[i]
			}
		}
		if b++; b == len(s) {
			b = 0
		}
	}
}

// Get returns the number of a key, or None.
func (t *Table) Get(rule, key string) uint32 {
	h := t.hash(rule, key)
	s := t.shard[h>>55&(shards-1)].slots.Load()
	if s == nil {
		return None
	}
	// A free slot has the number 0, which is None. One that a writer fills right
	// now may show the number of its new hash: look at that first.
	hash, number := s.find(h)
	if hash.Load() != h {
		return None
	}
	return number.Load()
}

// Set gives a key a number, or takes it away with None, and returns the one
// before.
func (t *Table) Set(rule, key string, number uint32) (was uint32) {
	h := t.hash(rule, key)
	s := &t.shard[h>>55&(shards-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(h, number)
}

func (s *shard) set(h uint64, number uint32) (was uint32) {
	now := s.slots.Load()
	if now == nil && number == None {
		return None
	}
	if now == nil || (s.used+1)*100 > len(*now)*inBucket*65 {
		now = s.grow()
	}
	hash, place := now.find(h)
	if hash.Load() == h {
		was = place.Swap(number)
		s.count(was, number)
		return was
	}
	if number != None {
		place.Store(number)
		hash.Store(h)
		s.used++
		s.live++
	}
	return None
}

func (s *shard) count(was, number uint32) {
	switch {
	case was == None && number != None:
		s.live++
	case was != None && number == None:
		s.live--
	}
}

// grow makes room for a quarter more keys, without those that are gone. Buckets
// are left so empty that few lookups read two.
func (s *shard) grow() *slots {
	next := make(slots, max(8, (s.live+1)*100/52/inBucket+1))
	s.each(func(h uint64, n uint32) {
		hash, number := next.find(h)
		number.Store(n)
		hash.Store(h)
	})
	s.used = s.live
	s.slots.Store(&next)
	return &next
}

// Numbers calls f with the number of each key that has one, in no order.
func (t *Table) Numbers(f func(number uint32)) {
	for i := range t.shard {
		s := &t.shard[i]
		s.mu.Lock()
		s.each(func(_ uint64, n uint32) { f(n) })
		s.mu.Unlock()
	}
}

// Renumber returns a table of the same keys with other numbers. A key whose
// number becomes None is left out. Changes that happen meanwhile may be missed.
func (t *Table) Renumber(f func(number uint32) uint32) *Table {
	next := &Table{seed: t.seed}
	for i := range t.shard {
		s := &t.shard[i]
		s.mu.Lock()
		s.each(func(h uint64, n uint32) { next.shard[i].set(h, f(n)) })
		s.mu.Unlock()
	}
	return next
}

// each calls f with each hash that has a number.
func (s *shard) each(f func(h uint64, number uint32)) {
	now := s.slots.Load()
	if now == nil {
		return
	}
	for i := range *now {
		b := &(*now)[i]
		for j := range b.hashes {
			if n := b.numbers[j].Load(); n != None {
				f(b.hashes[j].Load(), n)
			}
		}
	}
}

// Len returns how many keys have a number.
func (t *Table) Len() (n int) {
	for i := range t.shard {
		s := &t.shard[i]
		s.mu.Lock()
		n += s.live
		s.mu.Unlock()
	}
	return n
}

// Bytes returns what the table takes.
func (t *Table) Bytes() (n int64) {
	for i := range t.shard {
		if s := t.shard[i].slots.Load(); s != nil {
			n += int64(len(*s)) * 64
		}
	}
	return n
}
