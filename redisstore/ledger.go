package redisstore

import (
	"context"
	"sync"
	"time"
)

// A ledger is what this node keeps for each key under one limit in mode Lease or Async. It
// may be used from many goroutines at once: the lock of its shard guards each key, and is
// never held during a call.
type ledger[T any] struct {
	of    *boundLimit
	table *table[T]
}

func newLedger[T any](of *boundLimit) ledger[T] { return ledger[T]{of, newTable[T]()} }

// empty implements sweeper.
func (g *ledger[T]) empty() bool {
	for shard := range g.table.locked() {
		if len(shard.all) > 0 {
			return false
		}
	}
	return true
}

// get returns the value of a key, which made makes if there is none; nil if there are too
// many keys, or if made returns nil. The shard is locked.
func (g *ledger[T]) get(shard *tableShard[T], key string, made func() *T) *T {
	if shard.closed {
		return nil
	}
	one := shard.all[key]
	if one == nil {
		if g.of.heldKeys.Load() >= int64(g.of.LeaseKeys) {
			return nil
		}
		if one = made(); one == nil {
			return nil
		}
		g.of.heldKeys.Add(1)
		shard.put(key, one)
		g.of.once.Do(g.of.start)
	}
	return one
}

// known calls do with the value of a key, if there is one.
func (g *ledger[T]) known(key string, do func(*T)) {
	shard := g.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	if one := shard.all[key]; one != nil {
		do(one)
	}
}

// sweepBy calls due for each key, makes the calls that it returns, and forgets the keys that
// it says to forget. After the last sweep, the ledger takes no more keys.
func (g *ledger[T]) sweepBy(last bool, atOnce int, due func(shard *tableShard[T], key string, one *T, now int64) (call func(context.Context), forget bool)) {
	var calls []func(context.Context)
	for shard := range g.table.locked() {
		shard.closed = shard.closed || last
		now := g.of.clock()
		for key, one := range shard.all {
			call, forget := due(shard, key, one, now)
			if call != nil {
				calls = append(calls, call)
			}
			if forget {
				delete(shard.all, key)
				g.of.heldKeys.Add(-1)
			}
		}
	}
	within := time.Minute
	if last {
		within = time.Second
	}
	each(calls, atOnce, within)
}

// each makes calls, at most atOnce at a time. Calls that are not made within the given time
// fail.
func each(calls []func(context.Context), atOnce int, within time.Duration) {
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, call := range calls {
		turns <- struct{}{}
		wg.Go(func() {
			call(ctx)
			<-turns
		})
	}
	wg.Wait()
}
