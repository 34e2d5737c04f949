package lab

import (
	"context"
	"time"

	"github.com/stint-dev/stint/internal/aside"
)

type slicesKey struct{}

// withSlices makes simulations pause. A decision of the process that finds a simulation at work
// waits for one slice, which is as long as a few decisions.
func withSlices(ctx context.Context) context.Context {
	return context.WithValue(ctx, slicesKey{}, &aside.Slices{Work: 250 * time.Microsecond, Rest: 500 * time.Microsecond})
}

// slicesOf returns the pauses of a simulation, or nil if it makes none.
func slicesOf(ctx context.Context) *aside.Slices {
	s, _ := ctx.Value(slicesKey{}).(*aside.Slices)
	return s
}
