package redisstore

import (
	"hash/maphash"
	"sync"
)

// A table holds something for each of many keys, under locks of which each is
// for some of them.
type table[T any] struct {
	seed   maphash.Seed
	shards [64]tableShard[T]
}

type tableShard[T any] struct {
	sync.Mutex
	all    map[string]*T
	closed bool     // nothing more may come in
	_      [40]byte // a lock to a cache line
}

func newTable[T any]() *table[T] {
	t := &table[T]{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].all = make(map[string]*T)
	}
	return t
}

// of returns the shard that holds a key.
func (t *table[T]) of(key string) *tableShard[T] {
	return &t.shards[maphash.String(t.seed, key)%uint64(len(t.shards))]
}

// empty reports whether it holds nothing.
func (t *table[T]) empty() bool {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		n := len(s.all)
		s.Unlock()
		if n > 0 {
			return false
		}
	}
	return true
}
