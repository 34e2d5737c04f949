package memstore

import (
	"context"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
)

// flights are the units in flight of a store: it decides nothing once it is closed. What is
// held then can still be given back.
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
