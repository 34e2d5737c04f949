package arrivals

import (
	"context"
	"time"

	"github.com/stint-dev/stint/internal/waitqueue"
)

// askAgain is how long the first that is held sleeps at most before it looks anew whether
// it could start earlier, where the line is not told of room.
const askAgain = time.Second

// giveBackWithin is how long giving a place back may take. It has a deadline of its own
// because the caller's context has ended by then.
const giveBackWithin = time.Second

// A queue is those of a line that have a start under a leaky_queue, and wait for it.
type queue struct {
	held   waitqueue.Line[string]
	back   []string  // reservations of those that gave up, to be settled at 0
	look   bool      // room was made since the store was asked for those that are held
	looked time.Time // when the store was last asked for those
}

// nextHeld is next for one who is admitted, and waits for its start.
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
	if ln.poll > 0 { // nobody says when there is room
		ln.look = ln.look || !now.Before(ln.looked.Add(askAgain))
	}
	if ln.look && !ln.busy {
		ln.busy, ln.look, ln.looked = true, false, now
		return stepLook, due
	}
	if again := ln.looked.Add(askAgain); ln.poll > 0 && again.Before(due) {
		due = again
	}
	return stepPause, due
}

// assign gives the first of here its place, which ends its wait if it starts now.
func (ln *line) assign(w *Waiter, a Answer, now time.Time) {
	ln.exit(&w.stands[0])
	if !a.Place.Start.After(now) && ln.held.Len() == 0 {
		w.out = true
		return
	}
	if ln.held.Len() == 0 {
		ln.look, ln.looked = ln.again, now // room that was made while the store answered may be missing in it
	}
	w.admitted, ln.held.Span = true, a.Span
	ln.held.Join(&w.held, *a.Place, now)
}

// leaveQueue takes one out that waits for its start and gives up.
func (ln *line) leaveQueue(w *Waiter) {
	id := w.held.Reservation()
	if ln.held.Leave(&w.held, time.Now()) {
		ln.back = append(ln.back, id)
	}
	ln.epoch++
}

// surplus returns a reservation that is not needed and the cost to settle it at.
// ok is false if there is none.
func (ln *line) surplus() (id string, keep int64, ok bool) {
	if n := len(ln.back); n > 0 {
		id, ln.back = ln.back[0], ln.back[1:]
		return id, 0, true
	}
	return ln.held.Surplus(time.Now())
}

// lookHeld asks the store whether those that are held could start earlier: somebody has
// made room, or changed the limits. Then they give their places back and ask anew.
// The line is busy, and no longer when lookHeld returns.
func (ln *line) lookHeld(ctx context.Context) {
	defer ln.release(ctx)
	delay, err := ln.lines.Owner.Newcomer(ctx, ln.at)
	if err != nil {
		return // they keep the start that they have
	}
	order.Lock()
	defer order.Unlock()
	ln.disband(time.Now().Add(delay))
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
	ln.stuck = false
	for _, h := range ln.held.Disband() {
		w := h.Of.(*Waiter)
		w.admitted, w.looked, w.due = false, true, time.Time{}
		ln.enter(&w.stands[0])
	}
	ln.epoch++
}

// moveUp has the first that is held ask whether it and those behind it could start
// earlier.
func (ln *line) moveUp() {
	ln.look = true
	ln.held.Head().Wake()
}

// tidy gives back the places that the lines no longer need, unless another goroutine is
// calling the store for one; that one does it then.
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

// release gives back the places of those that gave up, the last first, then
// lets others ask the store for the line. An error leaves a place charged.
func (ln *line) release(ctx context.Context) {
	var end time.Time
	for {
		order.Lock()
		id, keep, ok := ln.surplus()
		if !ok {
			ln.busy = false
			ln.stir()
			ln.drop()
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
