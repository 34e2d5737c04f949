// Package recent keeps the most recently used values, up to a bound. They are limits that callers
// bring along, each of which costs a store something.
package recent

import (
	"container/list"
	"sync"
)

// Values are made when their key is first asked for. Beyond Max, the least recently used value is
// dropped. Values may be used from many goroutines at once; a lookup costs a lock and a map, and
// never waits for a value that is being made.
type Values[K comparable, V any] struct {
	// Max is the most values to keep, at least 1.
	Max int
	// Forgot, if set, is called for each value that is dropped.
	Forgot func()

	making sync.Mutex // held during make, before mu
	mu     sync.Mutex
	order  list.List // of entry, the most recent first
	known  map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Get returns the value of a key, which make makes if it is not kept. If make fails, Get returns
// its error and keeps nothing. One call of make runs at a time.
func (v *Values[K, V]) Get(key K, make func() (V, error)) (V, error) {
	if value, ok := v.find(key); ok {
		return value, nil
	}
	v.making.Lock()
	defer v.making.Unlock()
	if value, ok := v.find(key); ok { // made meanwhile
		return value, nil
	}
	value, err := make()
	if err == nil {
		v.keep(key, value)
	}
	return value, err
}

func (v *Values[K, V]) find(key K) (value V, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.known[key]
	if e == nil {
		return value, false
	}
	v.order.MoveToFront(e)
	return e.Value.(entry[K, V]).value, true
}

func (v *Values[K, V]) keep(key K, value V) {
	v.mu.Lock()
	defer v.mu.Unlock()
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
}
