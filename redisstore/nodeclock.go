package redisstore

import (
	"sync/atomic"
	"time"
)

// A nodeClock is a clock of this machine that counts the time it was suspended
// for, which the monotonic one of most systems does not: what a node has in
// hand must end while it sleeps. On Linux it is CLOCK_BOOTTIME; elsewhere the
// monotonic clock and every step forward of the time of day, of which a
// suspend is one. It may be used from many goroutines at once.
//
// A reading costs one time.Now. The difference between the time of day and the
// monotonic clock changes with a suspend; only when it has is the system asked.
type nodeClock struct {
	start  time.Time
	offset atomic.Int64 // time of day less monotonic time, when the system was last asked
	ahead  atomic.Int64 // what is to be added to the monotonic time
}

// drift is how far the two clocks may part until the system is asked: a clock
// that NTP slews by its most parts so far in two seconds.
const drift = int64(time.Millisecond)

func newNodeClock() *nodeClock {
	c := &nodeClock{start: time.Now()}
	c.offset.Store(c.start.UnixNano())
	c.ahead.Store(sinceBoot())
	return c
}

// now returns nanoseconds since some moment.
func (c *nodeClock) now() int64 {
	t := time.Now()
	monotonic := int64(t.Sub(c.start))
	offset := t.UnixNano() - monotonic
	if moved := offset - c.offset.Load(); moved > drift || moved < -drift {
		c.advance(monotonic, offset, moved)
	}
	return monotonic + c.ahead.Load()
}

// advance sets how far the clock is ahead of the monotonic one; it never goes back.
func (c *nodeClock) advance(monotonic, offset, moved int64) {
	old := c.offset.Load()
	if offset-old != moved || !c.offset.CompareAndSwap(old, offset) {
		return // another goroutine asks
	}
	ahead := c.ahead.Load()
	next := ahead + max(moved, 0)
	if boot := sinceBoot(); boot > 0 {
		next = boot - monotonic
	}
	if next > ahead {
		c.ahead.Store(next)
	}
}
