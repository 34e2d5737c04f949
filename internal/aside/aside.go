// Package aside has the pauses of work beside requests, which come first.
package aside

import (
	"context"
	"time"
)

// Slices let work compute for Work in one go, and leave the processor alone for Rest
// then: requests, the garbage collector and other programs have their turn. They
// belong to one goroutine. A nil Slices makes no pauses.
type Slices struct {
	Work, Rest time.Duration
	began      time.Time
}

// Pause rests if the work has had its slice. It is called often: the first slice
// begins with the first call.
func (s *Slices) Pause() {
	if s == nil {
		return
	}
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	}
	if now.Sub(s.began) >= s.Work {
		time.Sleep(s.Rest)
		s.began = time.Now()
	}
}

// Sleep returns after d, or when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
