package redisstore

import (
	"maps"
	"weak"
)

// A weakMap keeps values by name as long as something else refers to them. The zero value
// is ready to use.
type weakMap[T any] struct {
	all map[string]weak.Pointer[T]
	at  int // the size at which put drops values that are gone
}

// get returns the value of a name, nil if there is none.
func (m *weakMap[T]) get(name string) *T { return m.all[name].Value() }

// put adds a value. It drops values that are gone, once the map has twice as many as were
// left the last time.
func (m *weakMap[T]) put(name string, v *T) {
	if len(m.all) >= max(64, m.at) {
		maps.DeleteFunc(m.all, func(_ string, p weak.Pointer[T]) bool { return p.Value() == nil })
		m.at = 2 * len(m.all)
	}
	if m.all == nil {
		m.all = make(map[string]weak.Pointer[T])
	}
	m.all[name] = weak.Make(v)
}
