package rules

import (
	"container/heap"
	"sync"
	"time"
)

// An ending is when an override ends, by the source's clock; zero is never.
type ending struct {
	rule, key string
	at        time.Time
}

// expiries end overrides at their time. One timer runs, for the next.
type expiries struct {
	mu    sync.Mutex
	clock clock
	queue endings
	last  map[[2]string]time.Time // of each override that ends: an older ending does not count
	timer *time.Timer             // nil while nothing is to end
	end   func(rule, key string) error
	ended bool
}

func newExpiries(end func(rule, key string) error) *expiries {
	return &expiries{last: make(map[[2]string]time.Time), end: end}
}

// now returns the time by the source's clock.
func (e *expiries) now() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.clock.now()
}

// measured takes a measurement of the source's clock. The next ending may be at
// another moment then.
func (e *expiries) measured(ahead, doubt time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock.measure(ahead, doubt) {
		e.arm()
	}
}

// change runs f, which changes overrides, all of them or some, and notes their
// endings in the place of those that they had. Nothing ends meanwhile: an old
// ending would take away what f has just set.
func (e *expiries) change(all bool, ends []ending, f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	if all {
		e.queue = nil
		clear(e.last)
	}
	for _, one := range ends {
		at := [2]string{one.rule, one.key}
		if one.at.IsZero() {
			delete(e.last, at)
			continue
		}
		e.last[at] = one.at
		heap.Push(&e.queue, one)
	}
	e.arm()
}

// arm sets the timer for the next ending.
func (e *expiries) arm() {
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	if len(e.queue) > 0 && !e.ended {
		e.timer = time.AfterFunc(max(0, e.queue[0].at.Sub(e.clock.now())), e.due)
	}
}

// due ends what is due.
func (e *expiries) due() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for now := e.clock.now(); len(e.queue) > 0 && !e.queue[0].at.After(now) && !e.ended; {
		one := heap.Pop(&e.queue).(ending)
		at := [2]string{one.rule, one.key}
		if last, ok := e.last[at]; ok && last.Equal(one.at) {
			delete(e.last, at)
			_ = e.end(one.rule, one.key) // to take an override away cannot fail
		}
	}
	e.arm()
}

func (e *expiries) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	e.arm()
}

// endings is a heap, the next first.
type endings []ending

func (h endings) Len() int           { return len(h) }
func (h endings) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h endings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endings) Push(x any)        { *h = append(*h, x.(ending)) }
func (h *endings) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
