// Package bell tells many who wait that something may have changed.
package bell

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is for who listens to a bell that is closed.
var ErrClosed = errors.New("closed")

// A Bell rings for all who listen. The zero value is good, and may be used from many
// goroutines at once.
type Bell struct {
	mu     sync.Mutex
	rings  chan struct{}      // closed and made anew at each ring
	stop   context.CancelFunc // ends who rings; nil before the first Listen
	done   chan struct{}      // closed when that has ended
	closed bool
}

// Listen returns what is closed at the next ring. The first call starts ringer, which
// is to ring until its context ends: there is one, however many listen.
func (b *Bell) Listen(ringer func(ctx context.Context)) (<-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if b.stop == nil {
		var ctx context.Context
		ctx, b.stop = context.WithCancel(context.Background())
		b.rings, b.done = make(chan struct{}), make(chan struct{})
		go func() {
			defer close(b.done)
			ringer(ctx)
		}()
	}
	return b.rings, nil
}

// Ring wakes all who listen.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rings != nil {
		close(b.rings)
		b.rings = make(chan struct{})
	}
}

// Close rings for the last time, and returns when who rings has ended.
func (b *Bell) Close() {
	b.mu.Lock()
	stop, done := b.stop, b.done
	b.closed = true
	b.mu.Unlock()
	b.Ring()
	if stop != nil {
		stop()
		<-done
	}
}
