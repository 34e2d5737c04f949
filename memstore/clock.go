package memstore

import (
	"sync"
	"sync/atomic"
	"time"
)

// resample is how often the drift of wall time is measured, for windows that follow
// the time of day: rarely enough to cost nothing. A change of the system's clock
// reaches windows after that time at the latest.
const resample = int64(time.Second)

// A clock reads the time in nanoseconds since the Unix epoch and never steps: it is
// the wall clock at the start, carried on by the monotonic clock. Limits that follow
// the time of day add the drift: how far wall time has moved from this clock since.
//
// The monotonic clock of most systems stands still while the machine is
// suspended; buckets and logs then take the suspended time as not having
// passed, which is strict, and windows notice within a second of waking.
type clock struct {
	start   time.Time
	base    int64
	custom  func() int64
	coarse  atomic.Pointer[coarseClock] // nil unless the clock is coarse
	drift   atomic.Int64
	sampled atomic.Int64
}

func (c *clock) init(custom func() int64) {
	c.start, c.custom = time.Now(), custom
	c.base = c.start.UnixNano()
	c.sampled.Store(c.base)
}

func (c *clock) now() int64 {
	if k := c.coarse.Load(); k != nil {
		return k.at.Load()
	}
	if c.custom != nil {
		return c.custom()
	}
	return c.base + int64(time.Since(c.start))
}

// aligned returns the wall time that belongs to a moment of the clock.
func (c *clock) aligned(now int64) int64 {
	if c.custom != nil {
		return now
	}
	if last := c.sampled.Load(); now-last >= resample && c.sampled.CompareAndSwap(last, now) {
		t := time.Now()
		c.drift.Store(t.UnixNano() - c.base - int64(t.Sub(c.start)))
	}
	return now + c.drift.Load()
}

// coarseTick is how often a coarse clock is read: twice in the millisecond that
// it may lag.
const coarseTick = 500 * time.Microsecond

// A coarseClock is the time of the last tick. A goroutine keeps it until it is
// stopped.
type coarseClock struct {
	at   atomic.Int64
	quit chan struct{}
	done sync.WaitGroup
}

// coarsen has a goroutine read the clock from now on.
func (c *clock) coarsen() {
	if c.custom != nil {
		return // the caller's clock is what it is
	}
	k := &coarseClock{quit: make(chan struct{})}
	k.at.Store(c.now())
	k.done.Go(func() {
		tick := time.NewTicker(coarseTick)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				k.at.Store(c.base + int64(time.Since(c.start)))
			case <-k.quit:
				return
			}
		}
	})
	c.coarse.Store(k)
}

// stop ends the goroutine; the clock is then read at each decision. Further calls do
// nothing.
func (c *clock) stop() {
	if k := c.coarse.Swap(nil); k != nil {
		close(k.quit)
		k.done.Wait()
	}
}
