package memstore

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
)

// watchers are the callers that wait for room, by the hash of their key. Its lock is the
// last that a goroutine takes.
type watchers struct {
	n      atomic.Int64 // len(byHash), so that making room takes no lock while there are no watchers
	mu     sync.Mutex
	byHash map[uint64]map[*watcher]struct{}
}

type watcher struct{ wake func() }

// Watch calls wake whenever something other than time may have made room for key: a
// settlement, a refund, a reset, a change of limits, or Close. It does so until stop
// is called, on the goroutine that made the room, so wake must neither block nor ask
// the store. A [stint.Limiter] uses it.
func (s *Store) Watch(_ stint.Bound, key string, wake func()) (stop func()) {
	ws, h, w := &s.watchers, s.seed.hash(key), &watcher{wake}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byHash == nil {
		ws.byHash = make(map[uint64]map[*watcher]struct{})
	}
	if ws.byHash[h] == nil {
		ws.byHash[h] = make(map[*watcher]struct{})
		ws.n.Add(1)
	}
	ws.byHash[h][w] = struct{}{}
	return func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		delete(ws.byHash[h], w)
		if len(ws.byHash[h]) == 0 && ws.byHash[h] != nil {
			delete(ws.byHash, h)
			ws.n.Add(-1)
		}
	}
}

// roomMade wakes those that wait for the keys of the parts.
func (ws *watchers) roomMade(parts []part) {
	if ws.n.Load() == 0 {
		return
	}
	for i := range parts {
		if i > 0 && parts[i].hash == parts[i-1].hash {
			continue
		}
		ws.mu.Lock()
		found := slices.Collect(maps.Keys(ws.byHash[parts[i].hash]))
		ws.mu.Unlock()
		wakeAll(found)
	}
}

// everywhere wakes all watchers.
func (ws *watchers) everywhere() {
	if ws.n.Load() == 0 {
		return
	}
	var found []*watcher
	ws.mu.Lock()
	for _, of := range ws.byHash {
		found = slices.AppendSeq(found, maps.Keys(of))
	}
	ws.mu.Unlock()
	wakeAll(found)
}

func wakeAll(found []*watcher) {
	for _, w := range found {
		w.wake()
	}
}
