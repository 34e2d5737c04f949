package rules

import (
	"context"
	"time"

	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/rulesource"
)

const (
	// measureEvery is how often a source is asked for its clock, to notice when the clock is set.
	// Setting this machine's clock does not matter.
	measureEvery = 10 * time.Second
	// trustClock is how long a measurement is preferred to later, less certain ones: clocks drift.
	trustClock = 10 * time.Minute
	// stepped is how far two measurements differ, beyond their doubts, if the source's clock was
	// set.
	stepped = 50 * time.Millisecond
)

// A clock is the best estimate of a source's clock. It advances by this machine's monotonic clock,
// so that setting the wall clock changes nothing.
type clock struct {
	source time.Time // what the source's clock showed, without a monotonic reading
	at     time.Time // when it showed that, with one; zero before the first measurement
	doubt  time.Duration
	wall   func() time.Time // this machine's clock; nil for time.Now
}

// here returns the time of this machine's clock.
func (c *clock) here() time.Time {
	if c.wall != nil {
		return c.wall()
	}
	return time.Now()
}

// now returns the time of the source's clock.
func (c *clock) now() time.Time {
	if c.at.IsZero() {
		return c.here().Round(0)
	}
	return c.source.Add(time.Since(c.at))
}

// measure uses a measurement if it is more certain than the last one, if the last one is old, or if
// the clock was set. It reports whether it did.
func (c *clock) measure(ahead, doubt time.Duration) bool {
	at := time.Now()
	source := c.here().Add(ahead).Round(0)
	off := source.Sub(c.now()).Abs()
	if !c.at.IsZero() && doubt > c.doubt && at.Sub(c.at) <= trustClock && off <= doubt+c.doubt+stepped {
		return false
	}
	c.source, c.at, c.doubt = source, at, doubt
	return true
}

// keepTime measures the source's clock until ctx ends.
func (w *Follower) keepTime(ctx context.Context) {
	source, ok := w.f.Source.(rulesource.Clock)
	for ok && ctx.Err() == nil {
		aside.Sleep(ctx, measureEvery)
		look, stop := context.WithTimeout(ctx, reportWithin)
		if ahead, doubt, err := source.Clock(look); err == nil { // after an error the last measurement stays
			w.expiry.measured(ahead, doubt)
		}
		stop()
	}
}
