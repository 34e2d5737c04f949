package stint

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/meter"
)

const (
	// holdUnits and holdLeast are how much longer a reservation lives than the
	// delay that was foreseen, in units of the limit's pace and at least:
	// enough for others that take in between and for a timer that is late,
	// and so little that an idle queue keeps only a few.
	holdUnits = 16
	holdLeast = time.Millisecond
	// askAgain is how long the foremost waiter sleeps at most before it asks a
	// store again that does not say when it makes room.
	askAgain = time.Second
	// giveBackWithin is how long giving a place back may take. It has a
	// deadline of its own because the caller's context has ended by then.
	giveBackWithin = time.Second
)

// Wait waits until cost units of key pass, and charges them then. It returns
// nil when they have passed; otherwise nothing was charged, and the error is
//
//   - a [*WaitError], at once, when the context's deadline comes before they
//     could pass, or when they never can: the cost is above the limit;
//   - the context's error when it ends meanwhile;
//   - [ErrCost] for a cost below zero, or the store's error.
//
// A cost of 0 passes at once. A deadline is compared with what is known: it is
// assumed that the waiters ahead stay and that nothing else arrives. Waiters ahead
// count under every algorithm; under algorithms with windows, in whole windows.
//
// The waiters of one key are served first come first served, each with its
// whole cost, and a newcomer queues behind them. [Limiter.Take] and the like
// do not queue: what they take in between, the waiters do not get. The order
// is that of this Limiter; other processes on the same store have their own.
//
// A wait ends early when room is made by [Reservation.Settle], [Limiter.Refund],
// [Limiter.Reset] or a changed limit: over a memstore at once, whichever caller
// made the room; over a store that other processes share at once for Refund, Reset
// and SetLimits of this Limiter, and otherwise within a second. Under a
// [LeakyQueue] all that wait then move up.
//
// Under a [LeakyQueue] the charge is made on arrival, as soon as the queue has
// room, and Wait returns after the delay. A caller that gives up before that frees
// its place, and the waiters behind it in this Limiter move up. Callers of Take do
// not: they keep the delay that they got.
//
// Price: that of one Take and no allocation when the cost passes at once; under a
// LeakyQueue or a limit that counts what it denies two calls to the store, unless
// that is a memstore and the limit the only one.
// A waiter in line holds a few hundred bytes, but no goroutine of its own and no
// timer. Only the first in line calls the store, once each RetryAfter, and for a
// store that other processes share at least once a second. A waiter with a deadline
// makes two more calls.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) error {
	_, err := l.wait(ctx, key, cost, 0)
	return err
}

// WaitReserve is [Limiter.Wait] for a cost that is known only later: it waits
// in the same line, and returns a reservation that settles the charge at its
// true cost, within ttl of the moment it returns; nil for a cost of 0. So a caller of a language model
// waits until its estimate has room, makes the call, and settles at the tokens
// that it used; what it gives back wakes those that wait.
//
// Besides Wait's errors there is [ErrFull], when the store has no room for
// another reservation.
func (l *Limiter) WaitReserve(ctx context.Context, key string, cost int64, ttl time.Duration) (*Reservation, error) {
	if ttl <= 0 || cost == 0 {
		_, r, err := l.Reserve(ctx, key, cost, ttl)
		return r, err
	}
	id, err := l.wait(ctx, key, cost, ttl)
	return l.Reservation(id), err
}

// wait is WaitReserve, or Wait where ttl is 0.
func (l *Limiter) wait(ctx context.Context, key string, cost int64, ttl time.Duration) (ReservationID, error) {
	switch {
	case l.bound == nil:
		return "", errUnmade
	case cost < 0:
		return "", ErrCost
	}
	if err := ctx.Err(); err != nil || cost == 0 {
		return "", err
	}
	if t := l.stand(l.terms.Load()); cost <= t.capacity && l.lines.none(key) {
		if id, passes, err := l.passes(ctx, t, key, cost, ttl); passes || err != nil {
			return id, err
		}
	}
	return l.waitInLine(ctx, key, cost, ttl)
}

// passes charges a cost that passes at once. Under a leaky_queue, and a limit
// that counts what it denies, it looks before, unless the store does both at once.
func (l *Limiter) passes(ctx context.Context, t *terms, key string, cost int64, ttl time.Duration) (id ReservationID, passes bool, err error) {
	if t.queue || t.counts {
		if b, ok := l.bound.(interface {
			TakeAtOnce(key string, cost int64) (passes, known bool, err error)
		}); ok && ttl == 0 {
			if passes, known, err := b.TakeAtOnce(key, cost); known {
				return "", passes, err
			}
		}
		if d, err := l.bound.Decide(ctx, meter.OpPeek, key, cost); err != nil || !d.Allowed || d.Delay > 0 {
			return "", false, err
		}
	}
	var d Decision
	if ttl > 0 {
		d, id, err = l.reserve(ctx, key, cost, ttl)
	} else {
		d, err = l.bound.Decide(ctx, meter.OpTake, key, cost)
	}
	if err == nil && d.Delay > 0 { // others came between
		w := &waiter{cost: cost, ttl: ttl, terms: t}
		l.lines.join(key, w, l.watch)
		l.lines.mu.Lock()
		w.line.assign(w, d, id, time.Now())
		l.lines.mu.Unlock()
		_, err = l.drive(ctx, w, false)
		id = w.id
	}
	return id, d.Allowed, err
}

// waitInLine is wait for what may not pass at once.
func (l *Limiter) waitInLine(ctx context.Context, key string, cost int64, ttl time.Duration) (ReservationID, error) {
	w := &waiter{cost: cost, ttl: ttl, terms: l.learn()}
	if cost > w.terms.capacity {
		if d, err := l.Peek(ctx, key, cost); err != nil {
			return "", err
		} else if d.RetryAfter == Never {
			return "", &WaitError{Decision: d}
		}
	}
	l.lines.join(key, w, l.watch)
	if _, err := l.drive(ctx, w, false); err != nil || ttl == 0 {
		return "", err
	}
	return w.id, nil
}

// learn looks at the limits as they stand now.
func (l *Limiter) learn() *terms {
	t := termsOf(l.bound.Limits())
	l.terms.Store(t)
	return t
}

// stand returns the terms of the limits as they stand now: t, unless they have been
// changed since.
func (l *Limiter) stand(t *terms) *terms {
	if l.Unchanged(t.limits) {
		return t
	}
	return l.learn()
}

// watch has the store wake the line of key when it makes room, and returns what
// ends that; nil if the store cannot.
func (l *Limiter) watch(key string) func() {
	w, ok := l.store.(interface {
		Watch(b Bound, key string, wake func()) (stop func())
	})
	if !ok {
		return nil
	}
	return w.Watch(l.bound, key, func() { l.lines.roomMade(key) })
}

// drive acts for w until it starts or, with seat, until it is clear that it
// must wait. After an error w has left the line.
func (l *Limiter) drive(ctx context.Context, w *waiter, seat bool) (started bool, err error) {
	done := false
	defer func() {
		if !done { // an error, or a store that panics: the waiters behind must not hang
			l.giveUp(ctx, w)
		}
	}()
	for {
		step, due := l.lines.next(w, seat)
		switch step {
		case stepStart:
			done = true
			l.tidy(ctx, w.line)
			return true, nil
		case stepSeated:
			done = true
			return false, nil
		case stepTry:
			err = l.try(ctx, w, due)
		case stepLook:
			l.look(ctx, w.line)
		case stepSeat:
			err = l.lookAhead(ctx, w)
		case stepPause:
			err = pause(ctx, w, due)
		}
		if err != nil {
			return false, err
		}
	}
}

// pause returns when it is w's turn to look, when due has come (zero is
// never), or with the context's error.
func pause(ctx context.Context, w *waiter, due time.Time) error {
	var fire <-chan time.Time
	if !due.IsZero() {
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		fire = timer.C
	}
	select {
	case <-w.held.Turn:
	case <-fire:
	case <-ctx.Done():
		return over(ctx, due)
	}
	return nil
}

// over returns the context's error, but not that of a deadline for what was
// due by then: passing at the deadline is in time.
func over(ctx context.Context, due time.Time) error {
	err := ctx.Err()
	if err != nil && !due.IsZero() && errors.Is(err, context.DeadlineExceeded) && !time.Now().Before(due) {
		return nil
	}
	return err
}

// try asks the store for w, which is the first of its line that has not been
// admitted. The line is busy for it, and no longer when try returns.
func (l *Limiter) try(ctx context.Context, w *waiter, due time.Time) error {
	ln := w.line
	defer l.release(ctx, ln)
	if err := over(ctx, due); err != nil {
		return err
	}
	w.terms = l.stand(w.terms)
	before := time.Now()
	d, id, err := l.takeFor(ctx, w)
	if err != nil {
		return err
	}
	after := time.Now()
	if !d.Allowed {
		if err := l.seat(ctx, w, before, d, uint128.Int{}); err != nil {
			return err
		}
		l.lines.mu.Lock()
		defer l.lines.mu.Unlock()
		pause := max(time.Duration(d.RetryAfter), 1)
		if ln.unwatch == nil {
			pause = min(pause, askAgain)
		}
		if w.due = after.Add(pause); ln.again {
			w.due = time.Time{} // room was made meanwhile
		}
		ln.stuck = true
		return nil
	}
	l.lines.mu.Lock()
	ln.assign(w, d, id, after)
	l.lines.mu.Unlock()
	if d.Delay == 0 {
		return nil
	}
	return l.seat(ctx, w, before, d, uint128.Int{})
}

// look asks the store whether those that are held could start earlier: somebody has
// made room, or changed the limits. Then they give their places back and ask anew.
// The line is busy, and no longer when look returns.
func (l *Limiter) look(ctx context.Context, ln *line) {
	defer l.release(ctx, ln)
	d, err := l.Peek(ctx, ln.key, 1)
	if err != nil {
		return // they keep the start that they have
	}
	newcomer := d.Delay
	if !d.Allowed {
		newcomer = d.ResetAfter // at the latest, under one queue
	}
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	ln.disband(time.Now().Add(newcomer))
}

// takeFor takes or reserves the cost of w. What would be too late is not charged
// where that can be known before.
func (l *Limiter) takeFor(ctx context.Context, w *waiter) (d Decision, id ReservationID, err error) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // due at the deadline
	}
	key, ttl := w.line.key, w.ttl
	if w.terms.queue || w.terms.counts {
		before := time.Now()
		d, err := l.Peek(ctx, key, w.cost)
		if err != nil || !d.Allowed {
			return d, "", err
		}
		if d.Delay > 0 {
			if err := l.seat(ctx, w, before, d, uint128.Int{}); err != nil {
				return d, "", err
			}
		}
		if w.terms.queue {
			hold := max(w.terms.span(uint128.From(holdUnits)), holdLeast)
			ttl = satmath.Duration(satmath.AddInt64(satmath.AddInt64(uint64(d.Delay), uint64(hold)), uint64(ttl)))
		}
	}
	if ttl > 0 {
		d, id, err = l.reserve(ctx, key, w.cost, ttl)
	}
	if ttl == 0 || w.ttl == 0 && errors.Is(err, ErrFull) { // no room for reservations: a place that cannot be given back
		d, err = l.Take(ctx, key, w.cost)
	}
	return d, id, err
}

// lookAhead is for a waiter behind one that was denied: it must wait too, at
// least until those ahead have passed.
func (l *Limiter) lookAhead(ctx context.Context, w *waiter) error {
	_, bounded := ctx.Deadline()
	ask := bounded || w.room != nil
	l.lines.mu.Lock()
	w.seated = w.seated || !ask
	w.line.stir() // others may not know it either
	l.lines.mu.Unlock()
	if !ask {
		return nil
	}
	ahead, epoch, known := l.lines.ahead(w)
	before := time.Now()
	d, err := l.Peek(ctx, w.line.key, w.cost)
	if err != nil {
		return err
	}
	if !known || !l.lines.fresh(w, epoch) {
		ahead = uint128.Int{}
	}
	if err := l.seat(ctx, w, before, d, ahead); err != nil || !bounded || w.terms.alone() || ahead.Zero() {
		return err
	}
	all := ahead.Add(uint128.From(uint64(w.cost)))
	fits := uint128.Min(all, uint128.From(uint64(w.terms.capacity)))
	before = time.Now()
	d, err = l.Peek(ctx, w.line.key, int64(fits.Lo))
	if err != nil || d.RetryAfter == Never || !l.lines.fresh(w, epoch) {
		return err
	}
	wait := satmath.AddInt64(uint64(d.RetryAfter), uint64(w.terms.behind(all, fits, d.RetryAfter > 0)))
	if late(ctx, before, satmath.Duration(wait)) {
		d.Allowed, d.RetryAfter = false, Wait(satmath.Duration(wait))
		return &WaitError{Decision: d}
	}
	return nil
}

// seat is called when the answer d makes it clear that w must wait, behind
// others of a cost of ahead. It returns an error if there is no room for w, or
// not enough time.
func (l *Limiter) seat(ctx context.Context, w *waiter, before time.Time, d Decision, ahead uint128.Int) error {
	if d.RetryAfter == Never {
		return &WaitError{Decision: d}
	}
	if w.room != nil && !w.seated {
		if err := w.room(d); err != nil {
			return err
		}
	}
	l.lines.mu.Lock()
	w.seated = true
	l.lines.mu.Unlock()
	wait := time.Duration(d.RetryAfter)
	if d.Allowed {
		wait = d.Delay
	}
	if w.terms.alone() && w.cost <= w.terms.capacity {
		if !d.Allowed { // once admitted, it waits until all before it have been served
			ahead = ahead.Add(uint128.From(uint64(w.terms.capacity - w.cost)))
		}
		wait = satmath.Duration(satmath.AddInt64(uint64(wait), uint64(w.terms.span(ahead))))
		d.Delay = wait
	}
	if late(ctx, before, wait) {
		return &WaitError{Decision: d}
	}
	return nil
}

// late reports whether a wait that began no earlier than now ends after the
// context's deadline.
func late(ctx context.Context, now time.Time, wait time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return bounded && wait > 0 && deadline.Sub(now) < wait
}

// giveUp takes w out of its line. If it had been admitted, a place is given
// back: here, or by the goroutine that is calling the store for the line now.
func (l *Limiter) giveUp(ctx context.Context, w *waiter) {
	l.lines.mu.Lock()
	held := !w.out && w.line.leave(w)
	if !held {
		w.line.stir()
		l.lines.drop(w.line)
	}
	l.lines.mu.Unlock()
	if held {
		l.tidy(ctx, w.line)
	}
}

// tidy gives back the places that the line no longer needs, unless another
// goroutine is calling the store for the line; that one does it then.
func (l *Limiter) tidy(ctx context.Context, ln *line) {
	l.lines.mu.Lock()
	mine := !ln.busy
	ln.busy = true
	l.lines.mu.Unlock()
	if mine {
		l.release(ctx, ln)
	}
}

// release gives back the places of those that gave up, the last first, then
// lets others ask the store for the line. An error leaves a place charged.
func (l *Limiter) release(ctx context.Context, ln *line) {
	var end time.Time
	for {
		l.lines.mu.Lock()
		id, keep, ok := ln.surplus()
		if !ok {
			ln.busy = false
			ln.stir()
			l.lines.drop(ln)
			l.lines.mu.Unlock()
			return
		}
		ln.stir()
		l.lines.mu.Unlock()
		if end.IsZero() {
			end = time.Now().Add(giveBackWithin)
		}
		bounded, stop := context.WithDeadline(context.WithoutCancel(ctx), end)
		_, _ = l.store.Settle(bounded, id, keep) // if it fails, the place stays charged: strict
		stop()
		l.lines.mu.Lock()
		ln.roomMade()
		l.lines.mu.Unlock()
	}
}
