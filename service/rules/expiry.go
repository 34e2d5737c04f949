package rules

import (
	"container/heap"
	"sync"
	"time"
)

// expiries end overrides at their time. One timer runs, for the next. An override that
// is changed or taken away leaves nothing here of the ending that it had.
type expiries struct {
	mu    sync.Mutex
	clock clock
	endings
	timer *time.Timer // nil while nothing is to end
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

// measured takes a measurement of the source's clock. The next ending may be at
// another moment then.
func (e *expiries) measured(ahead, doubt time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clock.measure(ahead, doubt) {
		e.arm()
	}
}

// change runs f, which changes overrides, all of them or some, and notes when they end.
// Nothing ends meanwhile: an old ending would take away what f has just set.
func (e *expiries) change(f func(ends *endings)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.endings)
	e.arm()
}

// endings are when overrides end, by the source's clock.
type endings struct {
	queue queue
	of    map[customer]*queued // each in queue
}

func newEndings() endings { return endings{of: make(map[customer]*queued)} }

// note puts an ending in the place of the one that its override had; zero is never.
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
		heap.Remove(&e.queue, held.place)
	default:
		held.at = at
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
		delete(e.of, one.of)
		_ = e.end(one.of[0], one.of[1]) // to take an override away cannot fail
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
	of    customer
	at    time.Time
	place int
}

// A queue is a heap, the next first.
type queue []*queued

func (h queue) Len() int           { return len(h) }
func (h queue) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h queue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *queue) Push(x any) {
	one := x.(*queued)
	one.place = len(*h)
	*h = append(*h, one)
}
func (h *queue) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return one
}
