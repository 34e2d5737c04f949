package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// ErrUnavailable is for a call that was not made, since the calls before it
// have failed or too many are on their way: it charged nothing. It is an
// [ErrNotExecuted] as well.
var ErrUnavailable = fmt.Errorf("%w: the server does not answer", ErrNotExecuted)

const (
	breakAfter = 3                      // failures in a row that open it
	firstPause = 50 * time.Millisecond  // until a server that failed is tried again
	longPause  = 500 * time.Millisecond // the most: a server that is back is noticed within a second
	mostProbes = 4                      // on their way at once
)

// A breaker keeps calls from a server that does not answer: after a few
// failures in a row none is made. Then it is tried beside the traffic, after
// pauses that grow and differ between processes, each time with more patience
// than a request has: no request is ever the one that tries, and a machine that is
// too busy to answer in time does not keep it open. It may be used from many
// goroutines at once; while all is well it costs one atomic read.
type breaker struct {
	trouble atomic.Bool // whether the rest is to be looked at

	mu      sync.Mutex
	failed  int    // in a row
	open    bool   // no calls
	probing bool   // somebody tries
	slot    uint16 // of the last call that failed
}

// Health is what a call says of its server.
type health uint8

const (
	healthUnknown health = iota // nothing: its caller gave up
	healthGood
	healthBad
)

// lets reports whether a call may be made.
func (b *breaker) lets() bool {
	if !b.trouble.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open
}

// ended notes how a call on a slot ended. Calls that were on their way when the
// breaker opened count for nothing, unless they succeed. It reports whether
// somebody has to probe from now on: whoever called.
func (b *breaker) ended(h health, slot uint16) (probe bool) {
	if h == healthUnknown || h == healthGood && !b.trouble.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h == healthGood {
		b.failed, b.open = 0, false
		b.trouble.Store(false)
		return false
	}
	b.trouble.Store(true)
	b.slot = slot
	if b.failed++; b.failed < breakAfter {
		return false
	}
	b.open = true
	probe = !b.probing
	b.probing = true
	return probe
}

// probes reports where to probe. Once the breaker is closed there is no more to
// do: who probes has to end.
func (b *breaker) probes() (slot uint16, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = b.open
	return b.slot, b.open
}

// leave says that nobody probes any more.
func (b *breaker) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// probe tries a server until it answers, or ctx ends. A try that is on its way
// does not keep the next from being made.
func (b *breaker) probe(ctx context.Context, try func(ctx context.Context, slot uint16) health) {
	defer b.leave()
	answers := make(chan health, mostProbes)
	var tries sync.WaitGroup
	defer tries.Wait()
	away, pause := 0, firstPause
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-answers:
			away--
			if b.ended(h, b.at()); h != healthGood {
				continue
			}
		case <-timer.C:
		}
		slot, more := b.probes()
		if !more {
			return
		}
		if away < mostProbes {
			away++
			tries.Go(func() { answers <- try(ctx, slot) })
		}
		pause = min(2*pause, longPause)
		timer.Reset(pause/2 + rand.N(pause/2+1))
	}
}

// at returns where the last call failed.
func (b *breaker) at() uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slot
}
