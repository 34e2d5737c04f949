package stint

import (
	"slices"
	"sync"
	"time"
)

// lines are those that wait, a line for each key that anybody waits for. The
// zero value is ready. They are bounded by the number of waiters: a line goes
// when its last waiter does.
type lines struct {
	mu    sync.Mutex // guards everything below, and all lines and waiters
	byKey map[string]*line
}

// A line is the waiters of one key, first come first served. In front stand
// those that have been admitted and wait for their start (of a [LeakyQueue]
// only), behind them those that have not been admitted.
//
// Calls to the store are made without the lock, one at a time for a line: by
// whoever finds busy false and sets it.
type line struct {
	key        string
	head, tail *waiter
	first      *waiter // the first that has not been admitted
	pending    uint128 // cost of those that have not been admitted
	epoch      uint64  // counts what makes a sum over the line stale
	gone       int     // admitted waiters that gave up and still hold a place
	busy       bool
	stuck      bool // first was denied, so that those behind it must wait
}

// A slot is a place at the store's pace: when its holder starts, and the token
// that gives the place back, if there is one.
type slot struct {
	start time.Time
	token Token
}

// A waiter stands in a line. One goroutine at a time acts for it.
type waiter struct {
	line       *line
	prev, next *waiter
	terms      terms
	cost       int64
	turn       chan struct{}        // look again; never blocks whoever sends
	room       func(Decision) error // asked once, when it is clear that the waiter must wait; may be nil
	slot       slot                 // once admitted
	due        time.Time            // when to act next; zero for now
	admitted   bool
	seated     bool // room was asked: the waiter knows that it must wait
	gone       bool // gave up after it was admitted
	out        bool // left the line
}

// terms are what waiting needs to know of the limits.
type terms struct {
	limits   []Limit
	capacity int64 // the least of the limits'
	queue    bool  // a leaky_queue is among them
	counts   bool  // a limit counts what it denies
	buckets  bool  // all are gcra
}

func termsOf(limits []Limit) terms {
	t := terms{limits: limits, buckets: true}
	for i, l := range limits {
		if c := l.Capacity(); i == 0 || c < t.capacity {
			t.capacity = c
		}
		t.queue = t.queue || l.kind == LeakyQueue
		t.counts = t.counts || l.countDenied
		t.buckets = t.buckets && l.kind == GCRA
	}
	return t
}

// span returns n·T of the fastest bucket or queue among the limits, rounded
// down; 0 where none is.
func (t *terms) span(n uint128) time.Duration {
	var least time.Duration
	found := false
	for _, l := range t.limits {
		if l.kind != GCRA && l.kind != LeakyQueue {
			continue
		}
		d := spanOf(l, n)
		if !found || d < least {
			least, found = d, true
		}
	}
	return least
}

// spanOf returns n·T, rounded down and held at the longest duration.
func spanOf(l Limit, n uint128) time.Duration {
	if n.hi != 0 {
		return duration(^uint64(0))
	}
	return duration(mul(n.lo, uint64(l.period)).floor(uint64(l.count)))
}

// A step is what a waiter does next.
type step uint8

const (
	stepPause  step = iota // until its turn, or until due if that is set
	stepTry                // ask the store; the line is busy on its behalf
	stepSeat               // it is clear that it must wait
	stepSeated             // it knows that it must wait, and that was the question
	stepStart              // it has left the line and starts
)

// join puts a new waiter at the end of the line of key.
func (ls *lines) join(key string, w *waiter) {
	w.turn = make(chan struct{}, 1)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.byKey[key]
	if ln == nil {
		if ls.byKey == nil {
			ls.byKey = make(map[string]*line)
		}
		ln = &line{key: key}
		ls.byKey[key] = ln
	}
	w.line, w.prev = ln, ln.tail
	if ln.tail != nil {
		ln.tail.next = w
	} else {
		ln.head = w
	}
	ln.tail = w
	if ln.first == nil {
		ln.first = w
	}
	ln.pending = ln.pending.add(uint128{0, uint64(w.cost)})
}

// drop forgets a line that nobody needs any more.
func (ls *lines) drop(ln *line) {
	if ln.head == nil && !ln.busy && ls.byKey[ln.key] == ln {
		delete(ls.byKey, ln.key)
	}
}

// next says what w does next. If that is to pause, due is until when; zero if
// only its turn ends the pause. With seat, it stops at stepSeated.
func (ls *lines) next(w *waiter, seat bool) (s step, due time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := w.line
	ready := w.due.IsZero() || !time.Now().Before(w.due)
	switch {
	case w.out:
		return stepStart, due
	case w.admitted && ln.head == w && ready:
		ln.remove(w)
		ln.stir()
		ls.drop(ln)
		return stepStart, due
	case seat && w.seated:
		return stepSeated, due
	case w.admitted && ln.head == w:
		return stepPause, w.due
	case w.admitted:
		return stepPause, due
	case w == ln.first && !ln.busy && ready:
		ln.busy = true
		ln.epoch++
		return stepTry, w.due
	case w == ln.first && !ln.busy:
		return stepPause, w.due
	case w != ln.first && ln.stuck && !w.seated:
		return stepSeat, due
	}
	return stepPause, due
}

// remove takes w out of the line.
func (ln *line) remove(w *waiter) {
	if !w.admitted {
		ln.pending = ln.pending.sub(uint128{0, uint64(w.cost)})
	}
	if ln.first == w {
		ln.first, ln.stuck = w.next, false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ln.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ln.tail = w.prev
	}
	w.prev, w.next, w.out = nil, nil, true
	ln.epoch++
}

// admit gives the first that waits to be admitted its slot.
func (ln *line) admit(w *waiter, s slot) {
	ln.pending = ln.pending.sub(uint128{0, uint64(w.cost)})
	ln.first, ln.stuck = w.next, false
	w.admitted, w.slot, w.due = true, s, s.start
	ln.epoch++
}

// vacate takes out an admitted waiter that gave up, moves those behind it up,
// and returns the token of the place that nobody needs any more.
//
// When all behind it have its cost, each takes over the slot of the one before
// it and the last slot is left: that is exact, whatever the limits, and fits
// around takers that are not in the line. Else all start earlier by the time
// that its cost takes, rounded down so that nobody starts early.
func (ln *line) vacate(w *waiter) Token {
	free, same := w.slot, true
	for u := w.next; u != nil && u.admitted; u = u.next {
		same = same && u.cost == w.cost
	}
	by := w.terms.span(uint128{0, uint64(w.cost)})
	for u := w.next; u != nil && u.admitted; u = u.next {
		if same {
			u.slot, free = free, u.slot
		} else {
			u.slot.start = u.slot.start.Add(-by)
		}
		u.due = u.slot.start
	}
	ln.remove(w)
	if ln.first != nil {
		ln.first.due = time.Time{} // there will be room
	}
	return free.token
}

// vacateGone vacates for all that gave up and appends the tokens to settle.
func (ln *line) vacateGone(tokens []Token) []Token {
	for w := ln.head; w != nil && w.admitted && ln.gone > 0; {
		next := w.next
		if w.gone {
			ln.gone--
			tokens = append(tokens, ln.vacate(w))
		}
		w = next
	}
	return slices.DeleteFunc(tokens, func(t Token) bool { return t == "" })
}

// stir tells those to look again who may have something to do.
func (ln *line) stir() {
	ln.head.wake()
	ln.first.wake()
	if !ln.stuck {
		return
	}
	var w *waiter // the foremost that does not yet know that it must wait
	for u := ln.tail; u != nil && u != ln.first && !u.seated; u = u.prev {
		w = u
	}
	w.wake()
}

// wake tells w to look again.
func (w *waiter) wake() {
	if w == nil {
		return
	}
	select {
	case w.turn <- struct{}{}:
	default: // it will look anyway
	}
}

// ahead returns the cost of all that are not admitted and stand before w. The
// sum holds as long as fresh says so of the epoch; known is false while one of
// them may just be passing.
func (ls *lines) ahead(w *waiter) (cost uint128, epoch uint64, known bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	cost = w.line.pending
	for u := w.line.tail; u != w.prev; u = u.prev {
		cost = cost.sub(uint128{0, uint64(u.cost)})
	}
	return cost, w.line.epoch, !w.line.busy
}

// fresh reports whether nothing moved in the line of w since the epoch.
func (ls *lines) fresh(w *waiter, epoch uint64) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.line.epoch == epoch
}

// dueOf returns when w acts next, if that is known.
func (ls *lines) dueOf(w *waiter) (time.Time, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.due, !w.due.IsZero()
}
