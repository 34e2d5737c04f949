package stint

import (
	"context"
	"errors"
	"time"
)

const (
	// holdUnits and holdLeast are how much longer a reservation lives than the
	// delay that was foreseen, in units of the limit's pace and at least:
	// enough for others that take in between and for a timer that is late,
	// and so little that an idle queue keeps only a few.
	holdUnits = 16
	holdLeast = time.Millisecond
	// giveBackWithin is how long giving a place back may take, since the
	// context of whoever gave up is over by then.
	giveBackWithin = time.Second
)

// Wait waits until cost units of key pass, and charges them then. It returns
// nil when they have passed; else nothing was charged, and the error is
//
//   - a [*WaitError], at once, when the context's deadline comes before they
//     could pass, or when they never can: the cost is above the limit;
//   - the context's error when it ends meanwhile;
//   - [ErrCost] for a cost below zero, or what the store says.
//
// A cost of 0 passes at once. A deadline is held against what is known: that
// those ahead stay and that nothing else arrives.
//
// The waiters of one key are served first come first served, each with its
// whole cost, and a newcomer queues behind them. [Limiter.Take] and the like
// do not queue: what they take in between, the waiters do not get. The order
// is that of this Limiter; other processes on the same store have their own.
//
// Under a [LeakyQueue] the charge is made on arrival, as soon as the queue has
// room, and Wait returns after the delay. Who gives up before that frees the
// place, and those behind it in this Limiter move up. Only they can: a caller
// that was told a delay by Take keeps it.
//
// Price: one call to the store when the cost passes at once, two under a
// LeakyQueue or a limit that counts what it denies. Those that wait in line
// hold a few hundred bytes, but no goroutine of their own and no timer; the
// foremost alone asks the store, once each RetryAfter. With a deadline, each
// asks twice more.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) error {
	if cost < 0 {
		return ErrCost
	}
	if err := ctx.Err(); err != nil || cost == 0 {
		return err
	}
	w := &waiter{cost: cost, terms: termsOf(l.bound.Limits())}
	if cost > w.terms.capacity {
		if d, err := l.Peek(ctx, key, cost); err != nil {
			return err
		} else if d.RetryAfter == Never {
			return &WaitError{Decision: d}
		}
	}
	l.lines.join(key, w)
	_, err := l.await(ctx, w, false)
	return err
}

// await acts for w until it starts or, with seat, until it is clear that it
// must wait. After an error w has left the line.
func (l *Limiter) await(ctx context.Context, w *waiter, seat bool) (started bool, err error) {
	done := false
	defer func() {
		if !done { // an error, or a store that panics: nobody waits behind it
			l.giveUp(ctx, w)
		}
	}()
	for {
		step, due := l.lines.next(w, seat)
		switch step {
		case stepStart, stepSeated:
			done = true
			return step == stepStart, nil
		case stepTry:
			err = l.try(ctx, w, due)
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
	case <-w.turn:
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
	before := time.Now()
	d, token, err := l.ask(ctx, w)
	if err != nil {
		return err
	}
	after := time.Now()
	if !d.Allowed {
		if err := l.seat(ctx, w, before, d); err != nil {
			return err
		}
		l.lines.mu.Lock()
		w.due = after.Add(max(time.Duration(d.RetryAfter), 1))
		ln.stuck = true
		l.lines.mu.Unlock()
		return nil
	}
	l.lines.mu.Lock()
	if d.Delay == 0 && ln.head == w {
		ln.remove(w)
	} else {
		ln.admit(w, slot{after.Add(d.Delay), token})
	}
	l.lines.mu.Unlock()
	if d.Delay == 0 {
		return nil
	}
	return l.seat(ctx, w, before, d)
}

// ask takes the cost of w. What would be too late is not charged where that
// can be known before.
func (l *Limiter) ask(ctx context.Context, w *waiter) (Decision, Token, error) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // due at the deadline
	}
	key := w.line.key
	if !w.terms.queue && !w.terms.counts {
		d, err := l.Take(ctx, key, w.cost)
		return d, "", err
	}
	before := time.Now()
	d, err := l.Peek(ctx, key, w.cost)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	if !w.terms.queue {
		d, err = l.Take(ctx, key, w.cost)
		return d, "", err
	}
	if d.Delay > 0 {
		if err := l.seat(ctx, w, before, d); err != nil {
			return d, "", err
		}
	}
	hold := max(w.terms.span(uint128{0, holdUnits}), holdLeast)
	d, token, err := l.Reserve(ctx, key, w.cost, time.Duration(plus(uint64(d.Delay), uint64(hold))))
	if errors.Is(err, ErrFull) { // no room for reservations: a place that cannot be given back
		d, err = l.Take(ctx, key, w.cost)
	}
	return d, token, err
}

// lookAhead is for a waiter behind one that was denied: it must wait too.
func (l *Limiter) lookAhead(ctx context.Context, w *waiter) error {
	_, bounded := ctx.Deadline()
	ask := bounded || w.room != nil
	l.lines.mu.Lock()
	w.seated = w.seated || !ask
	w.next.wake() // which may not know it either
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
	if err := l.seat(ctx, w, before, d); err != nil || !bounded || !known || !w.terms.buckets {
		return err
	}
	return l.lookAll(ctx, w, ahead, epoch)
}

// lookAll is the exact look ahead, for buckets: those ahead and w pass as one
// request of their costs would.
func (l *Limiter) lookAll(ctx context.Context, w *waiter, ahead uint128, epoch uint64) error {
	all := ahead.add(uint128{0, uint64(w.cost)})
	most := uint128{0, uint64(w.terms.capacity)}
	fits := smaller(all, most)
	before := time.Now()
	d, err := l.Peek(ctx, w.line.key, int64(fits.lo))
	if err != nil || d.RetryAfter == Never || !l.lines.fresh(w, epoch) {
		return err
	}
	wait := plus(uint64(d.RetryAfter), uint64(w.terms.span(all.sub(most))))
	if late(ctx, before, time.Duration(wait)) {
		d.Allowed, d.RetryAfter = false, Wait(wait)
		return &WaitError{Decision: d}
	}
	return nil
}

// seat is called when the answer d makes it clear that w must wait. It returns
// an error if there is no room for w, or not enough time.
func (l *Limiter) seat(ctx context.Context, w *waiter, before time.Time, d Decision) error {
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
	switch {
	case d.Allowed:
		wait = d.Delay
	case w.terms.queue && len(w.terms.limits) == 1 && w.cost <= w.terms.capacity:
		// Once admitted, it waits until all before it have been served.
		rest := w.terms.span(uint128{0, uint64(w.terms.capacity - w.cost)})
		wait = time.Duration(plus(uint64(wait), uint64(rest)))
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

// giveUp takes w out of its line. If it had been admitted, its place is given
// back: here, or by whoever is asking the store for the line right now.
func (l *Limiter) giveUp(ctx context.Context, w *waiter) {
	l.lines.mu.Lock()
	ln := w.line
	switch {
	case w.out || w.gone:
		l.lines.mu.Unlock()
	case !w.admitted:
		ln.remove(w)
		ln.stir()
		l.lines.drop(ln)
		l.lines.mu.Unlock()
	default:
		w.gone = true
		ln.gone++
		mine := !ln.busy
		ln.busy = true
		l.lines.mu.Unlock()
		if mine {
			l.release(ctx, ln)
		}
	}
}

// release gives back the places of those that gave up, then lets others ask
// the store for the line. An error leaves the place charged.
func (l *Limiter) release(ctx context.Context, ln *line) {
	for {
		l.lines.mu.Lock()
		var tokens []Token
		if ln.gone > 0 {
			tokens = ln.vacateGone(nil)
		}
		if len(tokens) == 0 {
			ln.busy = false
			ln.stir()
			l.lines.drop(ln)
			l.lines.mu.Unlock()
			return
		}
		ln.stir()
		l.lines.mu.Unlock()
		l.giveBack(ctx, tokens)
	}
}

func (l *Limiter) giveBack(ctx context.Context, tokens []Token) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer stop()
	for _, token := range tokens {
		_, _ = l.store.Settle(ctx, token, 0) // if it fails, the place stays charged: strict
	}
}
