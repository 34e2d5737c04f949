package stint

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/internal/waitqueue"
)

// lines are the waiters, in a line for each key that has some. The zero value is
// ready to use. Memory is bounded by the number of waiters: a line goes when its
// last waiter does. Work under the lock takes constant time, except where costs
// differ under a leaky_queue.
type lines struct {
	n     atomic.Int64 // len(byKey), so that a caller who finds none needs no lock
	mu    sync.Mutex   // guards everything below, and all lines and waiters
	byKey map[string]*line
}

// A line is the waiters of one key, in order of arrival. Waiters that have been
// admitted and wait for their start (of a [LeakyQueue] only) are in held;
// behind them are those that have not been admitted, from first to last.
//
// Calls to the store are made without the lock, one at a time for each line: the
// goroutine that sets busy makes them.
type line struct {
	key         string
	held        waitqueue.Line[ReservationID]
	first, last *waiter
	unlooked    *waiter         // the foremost behind first that has not looked ahead, if any
	pending     uint128.Int     // cost of those that have not been admitted
	left        uint128.Int     // cost of all that no longer wait to be admitted
	epoch       uint64          // counts what makes a sum over the line stale
	back        []ReservationID // of those that gave up, to be settled at 0
	busy        bool
	stuck       bool      // first was denied, so that those behind it must wait
	again       bool      // room was made since first asked the store
	look        bool      // room was made since the store was asked for those that are held
	looked      time.Time // when the store was last asked for those
	unwatch     func()    // ends that the store wakes first when it makes room; nil if it does not
}

// A waiter stands in a line. One goroutine at a time acts for it.
type waiter struct {
	line       *line
	prev, next *waiter // while it has not been admitted
	held       waitqueue.Waiter[ReservationID]
	terms      *terms
	cost       int64
	ttl        time.Duration        // above 0: a reservation
	room       func(Decision) error // asked once, when it is clear that the waiter must wait; may be nil
	id         ReservationID        // once admitted, of a reservation
	before     uint128.Int          // cost of those before it when it came
	left       uint128.Int          // line.left then
	due        time.Time            // when to ask the store next; zero for now
	admitted   bool
	looked     bool // it has been its turn to look ahead
	seated     bool // room was asked: the waiter knows that it must wait
	out        bool // left the line
}

// wake has w look again.
func (w *waiter) wake() {
	if w != nil {
		w.held.Wake()
	}
}

// A step is what a waiter does next.
type step uint8

const (
	stepPause  step = iota // until its turn, or until due if that is set
	stepTry                // ask the store; the line is busy on its behalf
	stepLook               // likewise, for all that are held: whether they could start earlier
	stepSeat               // it is clear that it must wait
	stepSeated             // it knows that it must wait, and that was the question
	stepStart              // it has left the line and starts
)

// none reports whether key has no waiters.
func (ls *lines) none(key string) bool {
	if ls.n.Load() == 0 {
		return true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[key] == nil
}

// join puts a new waiter at the end of the line of key. A new line is watched:
// watch returns what ends that.
func (ls *lines) join(key string, w *waiter, watch func(key string) func()) {
	w.held = waitqueue.Waiter[ReservationID]{Units: w.cost, Turn: make(chan struct{}, 1), Of: w}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.byKey[key]
	if ln == nil {
		if ls.byKey == nil {
			ls.byKey = make(map[string]*line)
		}
		ln = &line{key: key, unwatch: watch(key)}
		ls.byKey[key] = ln
		ls.n.Add(1)
	}
	w.line = ln
	if ln.append(w); ln.unlooked == nil && w != ln.first {
		ln.unlooked = w
	}
}

// drop removes a line that is no longer needed.
func (ls *lines) drop(ln *line) {
	if ln.first == nil && ln.held.Empty() && len(ln.back) == 0 && !ln.busy && ls.byKey[ln.key] == ln {
		delete(ls.byKey, ln.key)
		ls.n.Add(-1)
		if ln.unwatch != nil {
			ln.unwatch()
		}
	}
}

// next says what w does next. If that is to pause, due is until when; zero if
// only its turn ends the pause. With seat, it stops at stepSeated.
func (ls *lines) next(w *waiter, seat bool) (s step, due time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := w.line
	head := w.admitted && ln.held.Head() == &w.held
	if head {
		due = ln.held.StartOf(&w.held)
	} else if w == ln.first {
		due = w.due
	}
	now := time.Now()
	ready := due.IsZero() || !now.Before(due)
	if head && !ready && ln.unwatch == nil { // the store does not say when it makes room
		ln.look = ln.look || !now.Before(ln.looked.Add(askAgain))
		if again := ln.looked.Add(askAgain); again.Before(due) {
			due = again
		}
	}
	switch {
	case w.out:
		return stepStart, due
	case head && ready:
		ln.held.Start()
		w.out = true
		ln.epoch++
		ln.stir()
		return stepStart, due
	case seat && w.seated:
		return stepSeated, due
	case head && ln.look && !ln.busy:
		ln.busy, ln.look, ln.looked = true, false, now
		return stepLook, due
	case w == ln.first && !ln.busy && ready:
		ln.busy, ln.again = true, false
		ln.epoch++
		return stepTry, due
	case w == ln.first && ln.busy:
		return stepPause, time.Time{}
	case !w.admitted && w != ln.first && ln.stuck && !w.looked:
		w.looked = true
		return stepSeat, due
	}
	return stepPause, due
}

// unlink takes a waiter that has not been admitted out of the row of those.
func (ln *line) unlink(w *waiter) {
	cost := uint128.From(uint64(w.cost))
	ln.pending, ln.left = ln.pending.Sub(cost), ln.left.Add(cost)
	if ln.unlooked == w {
		ln.unlooked = w.next
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ln.first, ln.stuck = w.next, false
		if ln.unlooked == ln.first && ln.first != nil {
			ln.unlooked = ln.first.next
		}
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ln.last = w.prev
	}
	w.prev, w.next = nil, nil
	ln.epoch++
}

// assign gives the first that waits to be admitted its place, which ends its
// wait if it starts now.
func (ln *line) assign(w *waiter, d Decision, id ReservationID, after time.Time) {
	ln.unlink(w)
	if w.id = id; d.Delay == 0 && ln.held.Len() == 0 {
		w.out = true
		return
	}
	if ln.held.Len() == 0 {
		ln.look, ln.looked = ln.again, after // room that was made while the store answered may be missing in it
	}
	w.admitted, ln.held.Span = true, w.terms.pace()
	p := waitqueue.Place[ReservationID]{Start: after.Add(d.Delay), Units: w.cost, Reservation: id}
	switch {
	case id == "":
	case w.ttl > 0:
		p.Return = waitqueue.ByWaiter
	default:
		p.Return = waitqueue.ByLine
	}
	ln.held.Join(&w.held, p, after)
}

// leave takes a waiter out that gives up. It reports whether a place may have
// to be given back.
func (ln *line) leave(w *waiter) (held bool) {
	w.out = true
	if !w.admitted {
		ln.unlink(w)
		return false
	}
	if ln.held.Leave(&w.held, time.Now()) {
		ln.back = append(ln.back, w.id)
	}
	ln.epoch++
	return true
}

// surplus returns a reservation that is not needed and the cost to settle it at.
// ok is false if there is none.
func (ln *line) surplus() (id ReservationID, keep int64, ok bool) {
	if n := len(ln.back); n > 0 {
		id, ln.back = ln.back[0], ln.back[1:]
		return id, 0, true
	}
	return ln.held.Surplus(time.Now())
}

// stir wakes the waiters that may have something to do.
func (ln *line) stir() {
	if h := ln.held.Head(); h != nil {
		h.Wake()
	}
	ln.first.wake()
	if !ln.stuck {
		return
	}
	for ln.unlooked != nil && ln.unlooked.looked {
		ln.unlooked = ln.unlooked.next
	}
	ln.unlooked.wake()
}

// disband puts those that are held in front of those that wait to be admitted, in
// order, if a newcomer would start at least a unit earlier than the last of them ends:
// then what the store holds is less than their places. These go back to the store.
func (ln *line) disband(newcomer time.Time) {
	if ln.held.Len() == 0 {
		return
	}
	if end, unit := ln.held.End(); !newcomer.Add(unit / 2).Before(end) { // half a unit for the time that calls take
		return
	}
	rest := ln.first
	ln.first, ln.last, ln.pending, ln.unlooked, ln.stuck = nil, nil, uint128.Int{}, rest, false
	for _, h := range ln.held.Disband() {
		w := h.Of.(*waiter)
		w.admitted, w.id, w.looked, w.due = false, "", true, time.Time{}
		ln.append(w)
	}
	for w := rest; w != nil; w = rest {
		rest = w.next
		ln.append(w)
	}
	ln.epoch++
}

// append puts w behind those that wait to be admitted.
func (ln *line) append(w *waiter) {
	w.prev, w.next, w.before, w.left = ln.last, nil, ln.pending, ln.left
	if ln.last != nil {
		ln.last.next = w
	} else {
		ln.first = w
	}
	ln.last = w
	ln.pending = ln.pending.Add(uint128.From(uint64(w.cost)))
}

// everyRoomMade is roomMade of all keys.
func (ls *lines) everyRoomMade() {
	if ls.n.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.byKey {
		ln.roomMade()
		ln.moveUp()
	}
}

// roomMade has the line of key ask the store at once: somebody else than the line
// has made room.
func (ls *lines) roomMade(key string) {
	if ls.n.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.byKey[key]; ln != nil {
		ln.roomMade()
		ln.moveUp()
	}
}

// roomMade has the first that waits to be admitted ask the store at once.
func (ln *line) roomMade() {
	ln.again = true
	if ln.first != nil {
		ln.first.due = time.Time{}
		ln.first.wake()
	}
}

// moveUp has the first that is held ask whether it and those behind it could start
// earlier.
func (ln *line) moveUp() {
	ln.look = true
	ln.held.Head().Wake()
}

// ahead returns the cost of all that are not admitted and stand before w, or
// less: those that have left behind it count too. The sum holds as long as
// fresh says so of the epoch; known is false while one of them may just be
// passing.
func (ls *lines) ahead(w *waiter) (cost uint128.Int, epoch uint64, known bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.before.Sub(w.line.left.Sub(w.left)), w.line.epoch, !w.line.busy
}

// fresh reports whether nothing moved in the line of w since the epoch.
func (ls *lines) fresh(w *waiter, epoch uint64) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.line.epoch == epoch
}

// dueOf returns when w starts or asks the store next, if that is known.
func (ls *lines) dueOf(w *waiter) (time.Time, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case w.admitted && !w.out:
		return w.line.held.StartOf(&w.held), true
	case w == w.line.first:
		return w.due, !w.due.IsZero()
	}
	return time.Time{}, false
}
