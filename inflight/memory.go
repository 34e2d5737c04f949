package inflight

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
)

// shards is how many locks a Memory has, so that a uint64 holds a set of them.
const shards = 64

// A Memory is the [Counts] of one process. A key with units in flight takes some 30
// bytes, any other key nothing. Keys are known by a hash of 64 bits with a secret seed.
type Memory struct {
	names, keys maphash.Seed
	shards      [shards]shard
}

type shard struct {
	sync.Mutex
	running map[uint64]int64
	most    int       // the most keys that running has had at once
	_       [5]uint64 // a cache line of its own
}

// fewKeys is how many keys a shard keeps memory for while nothing is in flight.
const fewKeys = 8

// NewMemory returns counts with nothing in flight.
func NewMemory() *Memory { return &Memory{names: maphash.MakeSeed(), keys: maphash.MakeSeed()} }

// locate returns the hash that counts a hold's units, and its shard.
func (m *Memory) locate(h *Hold) (id uint64, at int) {
	id = maphash.String(m.names, h.Name) ^ maphash.String(m.keys, h.Key)
	return id, int(id % shards)
}

// lock locks the shards of all holds, in order, and returns the set of them.
func (m *Memory) lock(holds []Hold) (set uint64) {
	for i := range holds {
		_, at := m.locate(&holds[i])
		set |= 1 << at
	}
	for rest := set; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(rest)].Lock()
	}
	return set
}

func (m *Memory) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		m.shards[bits.TrailingZeros64(set)].Unlock()
	}
}

// Most implements [Counts].
func (m *Memory) Most() int64 { return math.MaxInt64 }

// Acquire implements [Counts]. It never fails.
func (m *Memory) Acquire(_ context.Context, holds []Hold) (ok bool, err error) {
	set := m.lock(holds)
	defer m.unlock(set)
	if !m.look(holds) {
		return false, nil
	}
	m.add(holds)
	return true, nil
}

// Look implements [Counts]. It never fails.
func (m *Memory) Look(_ context.Context, holds []Hold) (ok bool, err error) {
	set := m.lock(holds)
	defer m.unlock(set)
	return m.look(holds), nil
}

func (m *Memory) look(holds []Hold) (ok bool) {
	ok = true
	for i := range holds {
		id, at := m.locate(&holds[i])
		ok = holds[i].decide(m.shards[at].running[id]) && ok
	}
	return ok
}

// Add implements [Counts].
func (m *Memory) Add(holds []Hold) {
	set := m.lock(holds)
	defer m.unlock(set)
	m.add(holds)
}

func (m *Memory) add(holds []Hold) {
	for i := range holds {
		id, at := m.locate(&holds[i])
		s := &m.shards[at]
		if s.running == nil {
			s.running = make(map[uint64]int64)
		}
		s.running[id] += holds[i].Units
		holds[i].Running, s.most = s.running[id], max(s.most, len(s.running))
	}
}

// Release implements [Counts].
func (m *Memory) Release(holds []Hold) {
	set := m.lock(holds)
	defer m.unlock(set)
	for i := range holds {
		id, at := m.locate(&holds[i])
		s := &m.shards[at]
		if left := s.running[id] - holds[i].Units; left > 0 {
			s.running[id] = left
		} else if delete(s.running, id); len(s.running) == 0 && s.most > fewKeys {
			s.running, s.most = nil, 0 // a map keeps the memory of its busiest moment
		}
	}
}
