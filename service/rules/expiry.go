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

// expiries end overrides at their time. One timer runs, for the next. An override that
// is changed or taken away leaves nothing here of the ending that it had.
type expiries struct {
	mu    sync.Mutex
	clock clock
	queue endings
	of    map[customer]*queued // each in queue
	timer *time.Timer          // nil while nothing is to end
	end   func(rule, key string) error
	ended bool
}

func newExpiries(end func(rule, key string) error) *expiries {
	return &expiries{of: make(map[customer]*queued), end: end}
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
		e.queue, e.of = nil, make(map[customer]*queued)
	}
	for _, one := range ends {
		e.note(one)
	}
	e.arm()
}

// note puts an ending in the place of the one that its override had.
func (e *expiries) note(one ending) {
	at := customer{one.rule, one.key}
	held := e.of[at]
	switch {
	case held == nil && !one.at.IsZero():
		held = &queued{ending: one}
		e.of[at] = held
		heap.Push(&e.queue, held)
	case held == nil:
	case one.at.IsZero():
		delete(e.of, at)
		heap.Remove(&e.queue, held.place)
	default:
		held.at = one.at
		heap.Fix(&e.queue, held.place)
	}
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
		one := heap.Pop(&e.queue).(*queued)
		delete(e.of, customer{one.rule, one.key})
		_ = e.end(one.rule, one.key) // to take an override away cannot fail
	}
	e.arm()
}

func (e *expiries) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	e.arm()
}

// A queued ending knows its place in the queue.
type queued struct {
	ending
	place int
}

// endings is a heap, the next first.
type endings []*queued

func (h endings) Len() int           { return len(h) }
func (h endings) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h endings) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *endings) Push(x any) {
	one := x.(*queued)
	one.place = len(*h)
	*h = append(*h, one)
}
func (h *endings) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return one
}
