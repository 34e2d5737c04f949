package memstore

import (
	"context"
	"runtime"

	"github.com/stint-dev/stint"
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
		if v.only == nil || cost <= 0 {
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

// allowBatch decides about at most batchKeys keys under one limit. It looks for the
// states of all keys before it decides on the first, so that the processor waits for
// memory once for many keys, not once for each.
func (b *bound) allowBatch(v *view, keys []string, cost int64, passed []bool) error {
	s, l := b.store, v.limits[0]
	if s.closed.Load() {
		return stint.ErrClosed
	}
	var few [batchKeys]uint64
	hashes := few[:len(keys)]
	var shards uint64 // a set
	for i, key := range keys {
		hashes[i] = s.seed.hash(key)
		shards |= 1 << s.shard(hashes[i])
	}
	s.allowLocked(l, shards, hashes, cost, passed)
	runtime.KeepAlive(b) // until here its limits are held
	return nil
}

// allowLocked takes cost from each of the hashes, with the locks of their shards.
func (s *Store) allowLocked(l *limit, shards uint64, hashes []uint64, cost int64, passed []bool) {
	now := s.clock.now()
	s.lockSet(shards)
	defer s.unlockSet(shards)
	var words [batchKeys]*uint64 // the state of a key whose state is one word close to its home
	var seen uint64
	for i, h := range hashes {
		if t := l.account.in(int(s.shard(h))); t == nil {
			continue
		} else if t.plain() && t.width == 1 {
			words[i] = t.near(h)
		} else {
			seen += t.firstSlot(h)
		}
	}
	runtime.KeepAlive(seen) // or the compiler drops the reads, which fetch the slots
	for i, h := range hashes {
		sh := &s.shards[s.shard(h)]
		if w := words[i]; w != nil {
			*w, passed[i] = l.meter.TakeWord(*w, sh.tick(now), cost)
			continue
		}
		moves := sh.moves
		passed[i] = sh.allow(s, l, sh.table(l.account), h, now, cost)
		if sh.moves != moves {
			clear(words[i+1:])
		}
	}
}

// firstSlot returns the hash in the first slot where a key may be.
func (t *table) firstSlot(h uint64) uint64 {
	g := t.segment(h)
	if g.used == 0 {
		return 0
	}
	return g.slots[g.home(h)*t.stride()]
}

// near returns the state of a key in a table of one word a state, if the key is in
// one of the first four slots where it may be, else nil. It compares with all four
// before it branches: nothing predicts how far a key is from its home.
func (t *table) near(h uint64) *uint64 {
	g := t.segment(h)
	at := 2 * g.home(h)
	if at+8 > len(g.slots) {
		return nil
	}
	w := (*[8]uint64)(g.slots[at:])
	not0 := differ(w[0], h)
	not1 := not0 & differ(w[2], h)
	not2 := not1 & differ(w[4], h)
	i := 2 * (not0 + not1 + not2)
	if w[i&7] != h {
		return nil
	}
	return &w[(i+1)&7]
}

// differ returns 0 for equal words, else 1.
func differ(a, b uint64) uint64 { d := a ^ b; return (d | -d) >> 63 }
