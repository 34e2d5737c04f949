package memstore

import (
	"sync"
	"sync/atomic"
	"time"
)

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

// stop ends the goroutine; the clock is then read at each decision. It may be
// called again.
func (c *clock) stop() {
	if k := c.coarse.Swap(nil); k != nil {
		close(k.quit)
		k.done.Wait()
	}
}
