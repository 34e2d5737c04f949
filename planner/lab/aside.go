package lab

import (
	"context"
	"time"

	"github.com/stint-dev/stint/internal/aside"
)

type slicesKey struct{}

// withSlices has a simulation make pauses. A decision that finds one at work waits for
// about a slice: it is of the length of a few decisions.
func withSlices(ctx context.Context) context.Context {
	return context.WithValue(ctx, slicesKey{}, &aside.Slices{Work: 250 * time.Microsecond, Rest: 500 * time.Microsecond})
}

// slicesOf returns the pauses that a simulation makes; nil for one that makes
// none.
func slicesOf(ctx context.Context) *aside.Slices {
	s, _ := ctx.Value(slicesKey{}).(*aside.Slices)
	return s
}
