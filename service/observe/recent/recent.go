// Package recent keeps what was used most recently, up to a bound: limits that
// callers bring along, of which each costs a store something.
package recent

import (
	"container/list"
	"sync"
)

// Values are made by key when they are first asked for, and the least recently
// used is forgotten for one beyond Max. They may be used from many goroutines at
// once; a look costs a lock and a map.
type Values[K comparable, V any] struct {
	// Max is the most that are kept, at least 1.
	Max int
	// Forgot, if set, is called for each that is forgotten.
	Forgot func()

	mu    sync.Mutex
	order list.List // of entry, the most recent first
	known map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Get returns the value of a key, which make makes if it is not known. Nothing
// is kept where make fails, with its error. One goroutine makes at a time.
func (v *Values[K, V]) Get(key K, make func() (V, error)) (V, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.known[key]; e != nil {
		v.order.MoveToFront(e)
		return e.Value.(entry[K, V]).value, nil
	}
	value, err := make()
	if err != nil {
		return value, err
	}
	if v.known == nil {
		v.known = map[K]*list.Element{}
	}
	if v.order.Len() >= v.Max {
		last := v.order.Back()
		delete(v.known, v.order.Remove(last).(entry[K, V]).key)
		if v.Forgot != nil {
			v.Forgot()
		}
	}
	v.known[key] = v.order.PushFront(entry[K, V]{key, value})
	return value, nil
}
