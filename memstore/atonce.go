package memstore

import (
	"runtime"

	"github.com/stint-dev/stint"
)

// TakeAtOnce takes cost from a key if that passes and starts at once: what a look
// and a take do, in one decision. Otherwise it changes nothing, and counts no
// denial. known is false where more than one state would have to be seen for it:
// then nothing has happened, and the caller looks first.
func (b *bound) TakeAtOnce(key string, cost int64) (passes, known bool, err error) {
	s, l := b.store, b.view.Load().only
	if l == nil || cost <= 0 {
		return false, false, nil
	}
	if s.closed.Load() {
		return false, true, stint.ErrClosed
	}
	h := s.seed.hash(key)
	sh := &s.shards[s.shard(h)]
	now := s.clock.now()
	sh.mu.Lock()
	passes, known = sh.takeAtOnce(s, l, h, now, cost)
	runtime.KeepAlive(b)
	return passes, known, nil
}

// takeAtOnce unlocks.
func (sh *shard) takeAtOnce(s *Store, l *limit, h uint64, now, cost int64) (passes, known bool) {
	defer sh.mu.Unlock()
	t := sh.table(l.account)
	slot := t.find(h)
	if sh.openOn(s, t, h) != nil || slot == nil && t.cells != nil || slot != nil && t.numbered && t.number(slot) != l.number {
		return false, false
	}
	if slot == nil && cost > l.meter.Capacity() {
		return false, true
	}
	if slot != nil {
		state, at := t.state(sh, slot), s.at(t, sh.tick(now))
		if !l.meter.Admits(state, at, cost) || l.meter.Delay(state, at, cost) > 0 {
			return false, true
		}
	}
	slot, state, at := sh.ready(s, l, t, h, now, cost)
	sh.putInForce(s, t, l, h, slot, at)
	return l.meter.Allow(state, at, cost), true
}
