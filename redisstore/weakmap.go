package redisstore

import (
	"maps"
	"weak"
)

// A weakMap keeps values by name for as long as others hold them. The zero value is
// ready.
type weakMap[T any] struct {
	all map[string]weak.Pointer[T]
	at  int // the size at which to look for values that are no longer held
}

// get returns nil for a value that is not there.
func (m *weakMap[T]) get(name string) *T { return m.all[name].Value() }

// put drops values that are no longer held, once there are twice as many as were left
// the last time.
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
