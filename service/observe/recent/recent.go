// Package recent keeps the most recently used values, up to a bound. They are limits that callers
// bring along, each of which costs a store something.
package recent

import (
	"container/list"
	"sync"
)

// Values are made when their key is first asked for. Beyond Max, the least recently used value is
// dropped. Values may be used from many goroutines at once; a lookup costs a lock and a map.
type Values[K comparable, V any] struct {
	// Max is the most values to keep, at least 1.
	Max int
	// Forgot, if set, is called for each value that is dropped.
	Forgot func()

	mu    sync.Mutex
	order list.List // of entry, the most recent first
	known map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Get returns the value of a key, which make makes if it is not kept. If make fails, Get returns
// its error and keeps nothing. One call of make runs at a time.
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
