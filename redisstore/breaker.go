package redisstore

import (
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
)

// A breaker keeps calls from a server that does not answer: after a few
// failures in a row none is made, but one probe at a time, after pauses that
// grow and differ between processes. It may be used from many goroutines at
// once; while all is well it costs one atomic read.
type breaker struct {
	trouble atomic.Bool // whether the rest is to be looked at

	mu      sync.Mutex
	failed  int           // in a row
	open    bool          // no calls but probes
	until   time.Duration // when the next probe may be made, on the store's monotonic clock
	pause   time.Duration
	probing bool // one is on its way
}

// A way says how a call was let in.
type way uint8

const (
	wayClosed way = iota // it was not
	wayCalls             // like all others
	wayProbe             // alone
)

// Health is what a call says of its server.
type health uint8

const (
	healthUnknown health = iota // nothing: its caller gave up
	healthGood
	healthBad
)

// enter says whether a call may be made. Each that may must leave.
func (b *breaker) enter(now time.Duration) way {
	if !b.trouble.Load() {
		return wayCalls
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return wayCalls
	case b.probing || now < b.until:
		return wayClosed
	}
	b.probing = true
	return wayProbe
}

// leave notes how a call ended that was let in. Calls that were on their way
// when the breaker opened count for nothing, unless they succeed.
func (b *breaker) leave(now time.Duration, by way, h health) {
	if by == wayCalls && (h == healthUnknown || h == healthGood && !b.trouble.Load()) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if by == wayProbe {
		b.probing = false
	}
	switch h {
	case healthGood:
		b.failed, b.open, b.pause = 0, false, 0
		b.trouble.Store(false)
	case healthBad:
		if b.open && by == wayCalls {
			return // it began before
		}
		b.trouble.Store(true)
		if b.failed++; b.open || b.failed >= breakAfter {
			b.open = true
			b.pause = min(max(2*b.pause, firstPause), longPause)
			b.until = now + b.pause/2 + rand.N(b.pause/2+1)
		}
	}
}

// breakers are one for each range of 256 slots: the nodes of a cluster serve
// ranges of slots, and one that fails must not stop calls to the others. What
// is no cluster has one.
type breakers [64]breaker

// of returns the breaker of a slot.
func (b *breakers) of(slot uint16) *breaker { return &b[slot>>8&63] }
