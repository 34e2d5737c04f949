package lab

import (
	"context"
	"time"
)

const (
	// slice is how long a simulation computes in one go where others have the
	// processor first, and rest how long it then leaves it alone. A decision that
	// finds one at work waits for about a slice: it is of the length of a few
	// decisions.
	slice = 250 * time.Microsecond
	rest  = 500 * time.Microsecond
)

// timeSlices are the pauses of a simulation that runs beside something that
// matters more. It belongs to one goroutine.
type timeSlices struct{ began time.Time }

type timeSlicesKey struct{}

func withSlices(ctx context.Context) context.Context {
	return context.WithValue(ctx, timeSlicesKey{}, &timeSlices{time.Now()})
}

// slicesOf returns the pauses that a simulation makes; nil for one that makes
// none.
func slicesOf(ctx context.Context) *timeSlices {
	s, _ := ctx.Value(timeSlicesKey{}).(*timeSlices)
	return s
}

// pause leaves the processor alone if the simulation has had its slice.
func (s *timeSlices) pause() {
	if s == nil || time.Since(s.began) < slice {
		return
	}
	time.Sleep(rest)
	s.began = time.Now()
}
