package memstore

import (
	"context"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
)

// flights counts the units in flight of a store. Once the store is closed, no more units are
// acquired; those that are held can still be released.
type flights struct {
	*inflight.Memory
	of *Store
}

// Acquire implements [inflight.Counts].
func (f flights) Acquire(ctx context.Context, holds []inflight.Hold) (ok bool, err error) {
	if f.of.closed.Load() {
		return false, stint.ErrClosed
	}
	return f.Memory.Acquire(ctx, holds)
}

// Look implements [inflight.Counts].
func (f flights) Look(ctx context.Context, holds []inflight.Hold) (ok bool, err error) {
	if f.of.closed.Load() {
		return false, stint.ErrClosed
	}
	return f.Memory.Look(ctx, holds)
}
