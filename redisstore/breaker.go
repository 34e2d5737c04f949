package redisstore

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// ErrUnavailable is for a call that was not made, since the calls before it
// have failed: it charged nothing. It is an [ErrNotExecuted] as well.
var ErrUnavailable = errors.New("redisstore: the server does not answer")

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

	mu     sync.Mutex
	failed int           // in a row
	open   bool          // no calls but probes
	until  time.Duration // when the next probe may be made, on the store's monotonic clock
	pause  time.Duration
	probes bool // one is on its way
}

// enter reports whether a call may be made. Each that may must leave.
func (b *breaker) enter(now time.Duration) bool {
	if !b.trouble.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return true
	}
	if b.probes || now < b.until {
		return false
	}
	b.probes = true
	return true
}

// leave notes how a call ended. Calls that were on their way when the breaker
// opened count for nothing, unless they succeed.
func (b *breaker) leave(now time.Duration, failed bool) {
	if !failed && !b.trouble.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed {
		b.failed, b.open, b.probes, b.pause = 0, false, false, 0
		b.trouble.Store(false)
		return
	}
	b.trouble.Store(true)
	b.failed++
	switch {
	case b.open && now < b.until: // began before it opened
	case b.open || b.failed >= breakAfter:
		b.open, b.probes = true, false
		b.pause = min(max(2*b.pause, firstPause), longPause)
		b.until = now + b.pause/2 + rand.N(b.pause/2+1)
	}
}

// breakers are one for each range of 256 slots: the nodes of a cluster serve
// ranges of slots, and one that fails must not stop calls to the others.
type breakers [64]breaker

// of returns the breaker of a slot.
func (b *breakers) of(slot uint16) *breaker { return &b[slot>>8&63] }
