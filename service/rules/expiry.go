package rules

import (
	"container/heap"
	"sync"
	"time"
)

// expiries end overrides at their time, with one timer for the next one. When an override is
// changed or removed, its former ending is removed from the queue.
type expiries struct {
	mu    sync.Mutex
	clock clock
	endings
	timer *time.Timer // nil while nothing will end
	end   func(rule, key string) error
	ended bool
}

func newExpiries(end func(rule, key string) error) *expiries {
	return &expiries{endings: newEndings(), end: end}
}

// now returns the time by the source's clock.
func (e *expiries) now() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.clock.now()
}

// measured passes on a measurement of the source's clock. It may move the next ending.
func (e *expiries) measured(ahead, doubt time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock.measure(ahead, doubt) {
		e.arm()
	}
}

// change runs f, which changes some or all overrides and notes when they end. No override ends
// while f runs, or an old ending could remove what f has just set.
func (e *expiries) change(f func(ends *endings)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.endings)
	e.arm()
}

// endings are the times at which overrides end, by the source's clock.
type endings struct {
	queue queue
	of    map[customer]*queued // the endings in queue, by customer
}

func newEndings() endings { return endings{of: make(map[customer]*queued)} }

// note replaces the ending of a customer's override; zero is never.
func (e *endings) note(of customer, at time.Time) {
	held := e.of[of]
	switch {
	case held == nil && !at.IsZero():
		held = &queued{of: of, at: at}
		e.of[of] = held
		heap.Push(&e.queue, held)
	case held == nil:
	case at.IsZero():
		delete(e.of, of)
		heap.Remove(&e.queue, held.index)
	default:
		held.at = at
		heap.Fix(&e.queue, held.index)
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

// due ends the overrides whose time has come.
func (e *expiries) due() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for now := e.clock.now(); len(e.queue) > 0 && !e.queue[0].at.After(now) && !e.ended; {
		one := heap.Pop(&e.queue).(*queued)
		delete(e.of, one.of)
		_ = e.end(one.of[0], one.of[1]) // removing an override cannot fail
	}
	e.arm()
}

func (e *expiries) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	e.arm()
}

// A queued is an ending that knows its index in the queue.
type queued struct {
	of    customer
	at    time.Time
	index int
}

// A queue is a heap with the next ending first.
type queue []*queued

func (h queue) Len() int           { return len(h) }
func (h queue) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h queue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *queue) Push(x any) {
	one := x.(*queued)
	one.index = len(*h)
	*h = append(*h, one)
}
func (h *queue) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return one
}
