package memstore

import (
	"context"
	"math/bits"
	"runtime"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// batchKeys is how many keys are decided under one round of locks: enough for
// the processor to fetch many of them at once, and so few that no other request
// waits long.
const batchKeys = 64

// AllowEach decides about each key by itself, in order; see
// [stint.Limiter.AllowEach].
func (b *bound) AllowEach(ctx context.Context, keys []string, cost int64, passed []bool) error {
	v := b.view.Load()
	for len(keys) > 0 {
		n := min(len(keys), batchKeys)
		if len(v.limits) > 1 || cost <= 0 {
			for i, key := range keys[:n] {
				var err error
				if passed[i], err = b.Allow(ctx, key, cost); err != nil {
					return err
				}
			}
		} else if err := b.allowBatch(v, keys[:n], cost, passed); err != nil {
			return err
		}
		keys, passed = keys[n:], passed[n:]
	}
	return nil
}

// allowBatch decides about at most batchKeys keys under one limit. It hashes
// all, locks their shards in order, looks at the place of each, and decides only
// then: what one look waits for from memory, the next does not wait behind.
func (b *bound) allowBatch(v *view, keys []string, cost int64, passed []bool) error {
	s, l := b.store, v.limits[0]
	if s.closed.Load() {
		return stint.ErrClosed
	}
	var hashes [batchKeys]uint64
	var shards, apart uint64 // sets, of shards and of keys
	for i, key := range keys {
		hashes[i] = s.seed.hash(key)
		shards |= 1 << s.shard(hashes[i])
	}
	now := s.clock.now()
	func() {
		for set := shards; set != 0; set &= set - 1 {
			s.shards[bits.TrailingZeros64(set)].mu.Lock()
		}
		defer func() {
			for set := shards; set != 0; set &= set - 1 {
				s.shards[bits.TrailingZeros64(set)].mu.Unlock()
			}
		}()
		var seen uint64
		for _, h := range hashes[:len(keys)] {
			seen += s.shards[s.shard(h)].table(l).look(h)
		}
		runtime.KeepAlive(seen) // the looks are what it is for
		for i, key := range keys {
			h := hashes[i]
			sh := &s.shards[s.shard(h)]
			if t := sh.table(l); t.several && sh.among(l, t, h) {
				apart |= 1 << i
			} else {
				passed[i] = sh.allow(s, l, t, h, key, now, cost)
			}
		}
	}()
	for ; apart != 0; apart &= apart - 1 {
		i := bits.TrailingZeros64(apart)
		d, err := b.several(meter.OpTake, keys[i], cost)
		if err != nil {
			return err
		}
		passed[i] = d.Allowed
	}
	runtime.KeepAlive(b) // until here its limits are held
	return nil
}

// look returns what stands at the first place where a key may be.
func (t *table) look(h uint64) uint64 {
	g := t.segment(h)
	if g.used == 0 {
		return 0
	}
	return g.slots[g.home(h)*t.stride()]
}
