package arrivals

import (
	"context"
	"time"

	"github.com/stint-dev/stint/internal/waitqueue"
)

// askAgain is how often the first held waiter asks whether it could start earlier, in a line that
// nobody tells of room.
const askAgain = time.Second

// giveBackWithin is how long giving places back may take. It is a deadline of its own, because the
// caller's context may have ended by then.
const giveBackWithin = time.Second

// A queue has the held waiters of a line: they have a start under a leaky_queue, and wait for it.
type queue struct {
	held   waitqueue.Line[string]
	back   []string  // reservations of waiters that gave up, to be settled at 0
	look   bool      // room was made since the store was last asked about the held waiters
	looked time.Time // when the store was last asked about them
}

// nextHeld is [Waiter.next] for a held waiter.
func (ln *line) nextHeld(w *Waiter, now time.Time, seat bool) (s step, due time.Time) {
	head := ln.held.Head() == &w.held
	if head {
		due = ln.held.StartOf(&w.held)
	}
	switch {
	case head && !now.Before(due):
		ln.held.Start()
		w.out = true
		ln.epoch++
		ln.stir()
		return stepStart, due
	case seat && w.seated:
		return stepSeated, due
	case !head:
		return stepPause, due
	}
	if ln.poll > 0 { // nobody tells the line of room
		ln.look = ln.look || !now.Before(ln.looked.Add(askAgain))
	}
	if ln.look && !ln.busy {
		ln.busy, ln.look, ln.looked = true, false, now
		return stepLook, due
	}
	if again := ln.looked.Add(askAgain); ln.poll > 0 && again.Before(due) && again.After(now) {
		due = again // if it is past, who has made the line busy wakes w
	}
	return stepPause, due
}

// assign gives w, the first of here, the place that the store charged for it. The wait is over if
// the place starts now and nobody is held before w.
func (ln *line) assign(w *Waiter, a Answer, now time.Time) {
	ln.exit(&w.stands[0])
	if !a.Place.Start.After(now) && ln.held.Len() == 0 {
		w.out = true
		return
	}
	if ln.held.Len() == 0 {
		ln.look, ln.looked = ln.again, now // the store's answer may lack room that was made meanwhile
	}
	w.admitted = true
	ln.held.Join(&w.held, *a.Place, now)
}

func (ln *line) leaveQueue(w *Waiter) {
	id := w.held.Reservation()
	if ln.held.Leave(&w.held, time.Now()) {
		ln.back = append(ln.back, id)
	}
	ln.epoch++
}

// surplus returns a reservation that the line no longer needs, and the cost to settle it at. ok is
// false if there is none.
func (ln *line) surplus() (id string, keep int64, ok bool) {
	if n := len(ln.back); n > 0 {
		id, ln.back = ln.back[0], ln.back[1:]
		return id, 0, true
	}
	return ln.held.Surplus(time.Now())
}

// lookHeld asks the store whether the held waiters could start earlier, since somebody made room or
// changed the limits. If they could, they give their places back and ask anew. The caller has set
// busy; lookHeld clears it.
func (ln *line) lookHeld(ctx context.Context) {
	defer ln.release(ctx)
	delay, pace, err := ln.lines.Owner.Newcomer(ctx, ln.at)
	newcomer := time.Now().Add(delay)
	order.Lock()
	defer order.Unlock()
	if err != nil || ln.held.Len() == 0 || !ln.held.Charged(pace) {
		return // the held waiters keep their starts: places of other numbers give nothing back
	}
	if end, unit := ln.held.End(); newcomer.Add(unit / 2).Before(end) { // half a unit, since calls take time
		ln.disband() // the store has charged less than their places
	}
}

// disband puts the held waiters back in front of those in here, in order. Their places go back to the
// store before anybody asks it for the line.
func (ln *line) disband() {
	ln.stuck = false
	for _, h := range ln.held.Disband() {
		w := h.Of.(*Waiter)
		w.admitted, w.looked, w.due, w.opens = false, true, time.Time{}, time.Time{}
		ln.enter(&w.stands[0])
	}
	ln.renumber()
	ln.epoch++
}

// moveUp makes the first held waiter ask whether all held waiters could start earlier.
func (ln *line) moveUp() {
	ln.look = true
	ln.held.Head().Wake()
}

// tidy gives back the places that the lines of w no longer need. For a line that is busy, the
// goroutine that calls the store for it will do so.
func (w *Waiter) tidy(ctx context.Context) {
	for i := range w.stands {
		ln := w.stands[i].line
		order.Lock()
		mine := !ln.busy
		ln.busy = true
		order.Unlock()
		if mine {
			ln.release(ctx)
		}
	}
}

// release gives back the places that the line no longer needs, then lets other waiters ask the store
// for the line.
func (ln *line) release(ctx context.Context) {
	ln.giveBack(ctx, func() {
		ln.busy = false
		ln.stir()
		ln.drop()
	})
}

// giveBack gives back the places that the line no longer needs, then calls then with the lock. A place
// that cannot be given back stays charged. The caller has set busy.
func (ln *line) giveBack(ctx context.Context, then func()) {
	var end time.Time
	for {
		order.Lock()
		id, keep, ok := ln.surplus()
		if !ok {
			then()
			order.Unlock()
			return
		}
		ln.stir()
		order.Unlock()
		if end.IsZero() {
			end = time.Now().Add(giveBackWithin)
		}
		bounded, stop := context.WithDeadline(context.WithoutCancel(ctx), end)
		ln.lines.Owner.GiveBack(bounded, id, keep)
		stop()
		order.Lock()
		ln.roomMade()
		order.Unlock()
	}
}
