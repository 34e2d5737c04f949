package rules

import (
	"context"
	"time"

	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/rulesource"
)

const (
	// measureEvery is how often a source's clock is asked for, so that a step of
	// it is noticed; of this machine's no step matters.
	measureEvery = 10 * time.Second
	// trustClock is how long a measurement is kept while later ones are less
	// certain: clocks drift.
	trustClock = 10 * time.Minute
	// stepped is how far measurements differ, beyond their doubts, if the source's
	// clock was set.
	stepped = 50 * time.Millisecond
)

// A clock is a source's clock as best known. It goes on by this machine's
// monotonic clock, so that setting the wall clock changes nothing.
type clock struct {
	source time.Time // that it showed, without a monotonic reading
	at     time.Time // when, with one; zero before the first measurement
	doubt  time.Duration
	wall   func() time.Time // this machine's; nil for time.Now
}

// here returns what this machine's clock shows.
func (c *clock) here() time.Time {
	if c.wall != nil {
		return c.wall()
	}
	return time.Now()
}

// now returns what the source's clock shows.
func (c *clock) now() time.Time {
	if c.at.IsZero() {
		return c.here().Round(0)
	}
	return c.source.Add(time.Since(c.at))
}

// measure takes a measurement if it is better than the one before, if that is
// old, or if the clock was set; it reports whether it did.
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
		if ahead, doubt, err := source.Clock(look); err == nil { // else it is as it was
			w.expiry.measured(ahead, doubt)
		}
		stop()
	}
}
