package redisstore

import (
	"sync/atomic"
	"time"
)

// A nodeClock is a clock of this machine that goes on while the machine is suspended, so
// that leases end meanwhile; the monotonic clock of most systems stands still. On Linux it
// is CLOCK_BOOTTIME; elsewhere it is the monotonic clock plus every step forward of the time
// of day, such as that of a suspend. It may be used from many goroutines at once.
//
// A reading costs one time.Now. A suspend changes the difference between the time of day
// and the monotonic clock; only after a change does it ask the system.
type nodeClock struct {
	start  time.Time
	offset atomic.Int64 // the time of day less the monotonic time, when the system was last asked
	ahead  atomic.Int64 // how far this clock is ahead of the monotonic one
}

// drift is how far the time of day may leave the monotonic clock before the system is asked. NTP, at
// its fastest, takes two seconds for that.
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
