package stint

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stint-dev/stint/internal/arrivals"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/internal/waitqueue"
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
	// giveBackWithin is how long giving back what a request has reserved may take. It has
	// a deadline of its own because the caller's context has ended by then.
	giveBackWithin = time.Second
)

// A TurnStore is a [Store] that knows of turns: a request that waited is charged as of the
// moment at which it would have passed, however late its caller wakes.
type TurnStore interface {
	Store
	// TakeTurn is Decide of [meter.OpTake], or with a ttl above 0 Reserve, for one who
	// waits: a denial changes nothing, begins no ban and is not counted, and what a
	// [LeakyQueue] would delay is denied. What passes is charged as of its turn, if all
	// its limits are buckets that have a state: not before any of them let it pass,
	// and neither more than age ago nor more than a second; else as of now.
	TakeTurn(ctx context.Context, layers []Layer, cost int64, ttl, age time.Duration) (Decision, ReservationID, error)
}

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
// count as far as is certain: under algorithms with windows, in whole windows. After
// [Limiter.SetLimits], no wait fails at once for its deadline for as long as all that a bucket or
// queue can hold needs by its numbers from before.
//
// The waiters of one key are served first come first served, each with its
// whole cost, and a newcomer queues behind them. Those who do not wait, as in
// [Limiter.Take], get only what the waiters of this Limiter leave: while somebody waits
// all the time, nothing. Other processes on the same store, and other limiters of the
// name, have an order of their own.
//
// Over a [TurnStore], which memstore and redisstore are, a waiter under a bucket is charged
// as of the moment at which it could have passed, up to a second ago. So a late timer
// delays its start, and no other.
//
// A wait ends early when room is made by [Reservation.Settle], [Limiter.Refund],
// [Limiter.Reset], [Limiter.Unblock] or a changed limit: over a memstore at once, whichever caller
// made the room; over a store that other processes share at once for Refund, Reset,
// Unblock and SetLimits of this Limiter, and otherwise within a second. Under a
// [LeakyQueue] all that wait then move up.
//
// Under a [LeakyQueue] the charge is made on arrival, as soon as the queue has
// room, and Wait returns after the delay. A caller that gives up before that frees
// its place, and the waiters behind it in this Limiter move up. Callers of Take do
// not: they keep the delay that they got.
//
// Price: that of one Take and no allocation when the cost passes at once; under a
// LeakyQueue, a ban or a limit that counts what it denies, where the store is no
// [TurnStore], two calls.
// A waiter in line holds less than a kilobyte, the first for a key 2 kB and a timer, and
// none a goroutine of its own. Only the first in line calls the store, once each RetryAfter, and for a
// store that other processes share at least once a second. A waiter with a deadline
// makes two more calls, and up to eight while others come and go.
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

// A waiter asks for a part that waits, or for a request of several.
type waiter struct {
	arrivals.Waiter
	part     Part
	request  *Request             // of several parts; else nil
	terms    *terms               // of one part
	ttl      time.Duration        // above 0: a reservation
	room     func(Decision) error // asked once, when it is clear that the waiter must wait; may be nil
	id       ReservationID        // once admitted, of a reservation
	reserved *Reservation         // likewise, of several parts
	start    time.Time            // likewise: when a queue lets it start
}

// at returns the line of a key.
func at(key string) arrivals.Place { return arrivals.Place{Key: key} }

// stand returns where one that waits for the part stands.
func (p Part) stand() arrivals.Part {
	return arrivals.Part{Lines: &p.limiter.lines, At: at(p.key), Cost: p.cost}
}

// wait is WaitReserve, or Wait where ttl is 0.
func (l *Limiter) wait(ctx context.Context, key string, cost int64, ttl time.Duration) (ReservationID, error) {
	err := l.decides()
	if err == nil && cost < 0 {
		err = ErrCost
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || cost == 0 {
		return "", err
	}
	t := l.stand(l.terms.Load())
	if cost <= t.capacity && l.lines.None(at(key)) {
		if id, passes, err := l.passes(ctx, t, key, cost, ttl); passes || err != nil {
			return id, err
		}
	}
	w := &waiter{part: Part{l, key, cost}, ttl: ttl, terms: t}
	if cost > t.capacity {
		if d, err := l.direct(ctx, meter.OpPeek, key, cost); err != nil {
			return "", err
		} else if d.RetryAfter == Never {
			return "", &WaitError{Decision: d}
		}
	}
	w.Join(w, arrivals.All, w.part.stand())
	if _, err := w.Drive(ctx, false); err != nil || ttl == 0 {
		return "", err
	}
	return w.id, nil
}

// passes charges a cost that passes at once.
func (l *Limiter) passes(ctx context.Context, t *terms, key string, cost int64, ttl time.Duration) (id ReservationID, passes bool, err error) {
	if b, ok := l.bound.(interface {
		TakeNow(key string, cost int64) bool
	}); ok && ttl == 0 && t.careful() && b.TakeNow(key, cost) {
		return "", true, nil
	}
	var d Decision
	switch _, turns := l.store.(TurnStore); {
	case t.careful() && turns || t.counts || t.bans:
		d, id, err = l.takeTurn(ctx, t, key, cost, ttl, 0)
	case t.queue: // the line asks
	case ttl > 0:
		d, id, err = l.reserve(ctx, key, cost, ttl, excuses)
	default:
		d, err = l.bound.Decide(ctx, meter.OpTake, key, cost)
	}
	return id, d.Allowed, err
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

// An owner is what the lines of a limiter need of it.
type owner struct{ limiter *Limiter }

// Watch implements [arrivals.Owner].
func (o owner) Watch(at arrivals.Place, wake func()) (stop func(), poll time.Duration) {
	if r, ok := o.limiter.bound.(*running); ok {
		return r.watch(at.Key, wake)
	}
	return watch(o.limiter.store, o.limiter.bound, at.Key, wake)
}

// watch has a store call wake when it makes room for a key; one that processes share does
// not say when that is, and is to be asked every poll.
func watch(store Store, b Bound, key string, wake func()) (stop func(), poll time.Duration) {
	if w, ok := store.(interface {
		Watch(b Bound, key string, wake func()) (stop func())
	}); ok {
		return w.Watch(b, key, wake), 0
	}
	return nil, askAgain
}

// Divert implements [arrivals.Owner].
func (o owner) Divert(waiting bool) { o.limiter.divert(waiting) }

// Newcomer implements [arrivals.Owner].
func (o owner) Newcomer(ctx context.Context, at arrivals.Place) (time.Duration, waitqueue.Pace, error) {
	l := o.limiter
	d, err := l.direct(ctx, meter.OpPeek, at.Key, 1)
	if !d.Allowed {
		d.Delay = d.ResetAfter // at the latest, under one queue
	}
	return d.Delay, l.stand(l.terms.Load()).pace(), err
}

// GiveBack implements [arrivals.Owner]. If it fails, the place stays charged: strict.
func (o owner) GiveBack(ctx context.Context, id string, keep int64) {
	_, _ = o.limiter.store.Settle(ctx, ReservationID(id), keep)
}

// takeTurn takes for one who waits, whose turn may have been some time ago: a denial
// changes nothing. Where the store does not know of turns, the turn is now.
func (l *Limiter) takeTurn(ctx context.Context, t *terms, key string, cost int64, ttl, age time.Duration) (d Decision, id ReservationID, err error) {
	if s, ok := l.store.(TurnStore); ok {
		layers := l.layers(key)
		layers[0].Excuses = excuses
		return s.TakeTurn(ctx, layers, cost, ttl, age)
	}
	if t.careful() {
		if d, err = l.direct(ctx, meter.OpPeek, key, cost); err != nil || !d.Allowed {
			return d, "", err
		}
	}
	if ttl > 0 {
		return l.reserve(ctx, key, cost, ttl, excuses)
	}
	d, err = l.direct(ctx, meter.OpTake, key, cost)
	return d, "", err
}

// Take implements [arrivals.Asker].
func (w *waiter) Take(ctx context.Context, later time.Duration, _ uint64) (a arrivals.Answer, err error) {
	var d Decision
	before := time.Now()
	switch {
	case later > 0:
		d.RetryAfter, ctx = Wait(later), context.WithoutCancel(ctx) // it may start before: no deadline is missed
	case w.request != nil:
		d, err = w.request.takeTurn(ctx, w)
	default:
		d, err = w.take(ctx)
	}
	if err != nil {
		return a, err
	}
	now := time.Now()
	w.start = now.Add(d.Delay)
	if !d.Allowed || d.Delay > 0 && w.request == nil {
		if err := w.seat(ctx, before, d, uint128.Int{}); err != nil {
			return a, w.giveBack(ctx, err)
		}
	}
	if a.Passes, a.Again = d.Allowed, time.Duration(d.RetryAfter); !a.Passes && w.old() {
		a.Again = min(a.Again, askAgain)
	}
	if a.Passes && w.request == nil {
		place := w.placeFrom(w.start)
		a.Place = &place
	}
	if w.request != nil {
		a.Lacks = w.request.lacks(d)
	}
	return a, nil
}

// lacks returns a bit for each part of which a limit denies.
func (r *Request) lacks(d Decision) (lacks uint64) {
	from := 0
	for i, p := range r.parts {
		limits := len(p.limiter.terms.Load().limits)
		if d.Denied>>uint(from)&(1<<uint(limits)-1) != 0 {
			lacks |= 1 << uint(i)
		}
		from += limits
	}
	return lacks
}

// placeFrom returns a place in a queue that the waiter gets or has got.
func (w *waiter) placeFrom(start time.Time) waitqueue.Place[string] {
	p := waitqueue.Place[string]{Start: start, Units: w.part.cost, Reservation: string(w.id), Pace: w.terms.pace()}
	switch {
	case w.ttl > 0:
		p.Return = waitqueue.ByWaiter
	case w.id != "":
		p.Return = waitqueue.ByLine
	}
	return p
}

// giveBack gives back what has just been reserved, because of why, and returns why.
func (w *waiter) giveBack(ctx context.Context, why error) error {
	if w.id == "" {
		return why
	}
	return cancel(ctx, w.part.limiter.Reservation(w.id), why)
}

// take takes or reserves what a part needs. What would be too late is not charged where
// that can be known before.
func (w *waiter) take(ctx context.Context) (d Decision, err error) {
	l, key, cost := w.part.limiter, w.part.key, w.part.cost
	before := w.terms
	w.terms, w.id = l.stand(before), ""
	if !w.terms.queue {
		age := w.Age()
		if len(w.terms.limits) > 1 {
			age = w.Free()
		}
		d, w.id, err = l.takeTurn(ctx, w.terms, key, cost, w.ttl, age)
		return d, err
	}
	asked, raised := time.Now(), w.terms.pace().Faster(before.pace()) && !w.terms.counts && !w.terms.bans
	if d, err = l.direct(ctx, meter.OpPeek, key, cost); err != nil || !d.Allowed && !raised {
		return d, err
	}
	if d.Allowed && d.Delay > 0 { // if it is denied, a decision puts the faster pace in force
		if err := w.seat(ctx, asked, d, uint128.Int{}); err != nil {
			return d, err
		}
	}
	hold := max(w.terms.span(uint128.From(holdUnits)), holdLeast)
	ttl := satmath.Duration(satmath.AddInt64(satmath.AddInt64(uint64(d.Delay), uint64(hold)), uint64(w.ttl)))
	d, w.id, err = l.reserve(ctx, key, cost, ttl, w.excuses())
	if w.ttl == 0 && errors.Is(err, ErrFull) { // no room for reservations: a place that cannot be given back
		d, err = l.direct(ctx, meter.OpTake, key, cost)
	}
	return d, err
}

// excuses is how long what w reserves excuses denials: a place in a queue is charged for good, unless w
// leaves.
func (w *waiter) excuses() time.Duration {
	if w.ttl == 0 {
		return 0
	}
	return excuses
}

// Look implements [arrivals.Asker].
func (w *waiter) Look(ctx context.Context, part int) (a arrivals.Answer, err error) {
	p := w.partAt(part)
	d, err := p.limiter.direct(ctx, meter.OpPeek, p.key, p.cost)
	if err == nil && d.RetryAfter == Never {
		err = &WaitError{Decision: d, parts: w.request != nil}
	}
	return arrivals.Answer{Passes: d.Allowed, Again: time.Duration(d.RetryAfter)}, err
}

func (w *waiter) partAt(i int) Part {
	if w.request == nil {
		return w.part
	}
	return w.request.parts[i]
}

// With implements [arrivals.Asker].
func (w *waiter) With(ctx context.Context, more []int64) (lacks uint64, again time.Duration, err error) {
	layers := make([]Layer, len(more))
	for i, units := range more {
		p := w.partAt(i)
		most := max(p.limiter.terms.Load().capacity, p.cost)
		if units > most-p.cost {
			lacks |= 1 << uint(i)
		}
		layers[i] = Layer{Bound: p.limiter.bound, Key: p.key, Weight: p.cost + min(units, most-p.cost)}
	}
	d, err := w.partAt(0).limiter.store.Decide(ctx, meter.OpPeek, layers, 1)
	if again = time.Duration(d.RetryAfter); lacks != 0 || d.RetryAfter == Never { // more than fits at one moment
		again = arrivals.Unknown
	}
	switch {
	case err != nil || d.Allowed:
	case w.request == nil:
		lacks = 1
	default:
		lacks |= w.request.lacks(d)
	}
	return lacks, again, err
}

// Refill implements [arrivals.Asker].
func (w *waiter) Refill(part int, d time.Duration) int64 {
	return w.partAt(part).limiter.terms.Load().refill(d)
}

// Ahead implements [arrivals.Asker]: the waiter must wait at least until those ahead have
// passed.
func (w *waiter) Ahead(ctx context.Context) error {
	_, bounded := ctx.Deadline()
	if !bounded && w.room == nil {
		return nil
	}
	if w.request != nil {
		return w.aheadOfParts(ctx)
	}
	for range looks {
		if sure, err := w.lookAhead(ctx, bounded); sure || err != nil {
			return err
		}
	}
	return nil
}

// looks is how often a waiter asks whether its deadline can be met, while others come and go.
const looks = 4

// lookAhead returns an error if there is no room for w, or not enough time behind those ahead.
// Who has left the line by the time of the answer is not counted, since the store may have
// charged it. sure says that the answer stays the same if nobody leaves.
func (w *waiter) lookAhead(ctx context.Context, bounded bool) (sure bool, err error) {
	l, key, cost := w.part.limiter, w.part.key, w.part.cost
	earlier, before := w.Before(0), time.Now()
	d, err := l.direct(ctx, meter.OpPeek, key, cost)
	if err != nil {
		return false, err
	}
	now := w.Before(0)
	if sure = now.Quiet; w.terms.alone() {
		if sure = now.Since(earlier); !sure {
			now.Cost = uint128.Int{}
		}
	}
	if err := w.seat(ctx, before, d, now.Cost); err != nil || !bounded || w.terms.alone() || now.Cost.Zero() {
		return sure || !bounded, err
	}
	return w.inTime(ctx, 0)
}

// aheadOfParts is Ahead for a request of several parts.
func (w *waiter) aheadOfParts(ctx context.Context) error {
	before := time.Now()
	d, err := w.request.look(ctx)
	if err == nil {
		err = w.seat(ctx, before, d, uint128.Int{})
	}
	for i := 0; i < len(w.request.parts) && err == nil; i++ {
		sure := false
		for n := 0; n < looks && !sure && err == nil; n++ {
			sure, err = w.inTime(ctx, i)
		}
	}
	return err
}

// inTime returns an error if the deadline comes before a part, and all that wait before w for its
// key, have passed. sure is that of lookAhead.
func (w *waiter) inTime(ctx context.Context, part int) (sure bool, err error) {
	p, now := w.partAt(part), w.Before(part)
	if now.Cost.Zero() {
		return true, nil
	}
	t, cost := p.limiter.terms.Load(), uint128.From(uint64(p.cost))
	all := now.Cost.Add(cost)
	fits := uint128.Min(all, uint128.From(uint64(t.capacity)))
	before := time.Now()
	d, err := p.limiter.direct(ctx, meter.OpPeek, p.key, int64(fits.Lo))
	if err != nil || d.RetryAfter == Never {
		return true, err
	}
	now = w.Before(part)
	if all = now.Cost.Add(cost); all.Less(fits) {
		return false, nil // that many are not needed any more
	}
	if wait := t.after(all, fits, &d); !w.old() && late(ctx, before, wait) {
		d.Allowed, d.RetryAfter = false, Wait(wait)
		return true, &WaitError{Decision: d, parts: w.request != nil}
	}
	return now.Quiet, nil
}

// seat is called when the answer d makes it clear that w must wait, behind
// others of a cost of ahead. It returns an error if there is no room for w, or
// not enough time.
func (w *waiter) seat(ctx context.Context, before time.Time, d Decision, ahead uint128.Int) error {
	if d.RetryAfter == Never {
		return &WaitError{Decision: d, parts: w.request != nil}
	}
	if w.room != nil {
		if err := w.room(d); err != nil {
			return err
		}
		w.room = nil
	}
	wait := time.Duration(d.RetryAfter)
	if d.Allowed {
		wait = d.Delay
		if w.request == nil && ahead.Zero() {
			wait = w.Spare(w.placeFrom(before.Add(wait))).Sub(before)
		}
	}
	if t := w.terms; t != nil && t.alone() && w.part.cost <= t.capacity && !d.Banned { // a ban does not move later starts
		if !d.Allowed { // once admitted, it waits until all before it have been served
			ahead = ahead.Add(uint128.From(uint64(t.capacity - w.part.cost)))
		}
		wait = satmath.Duration(satmath.AddInt64(uint64(wait), uint64(t.span(ahead))))
		d.Delay = wait
	}
	if !w.old() && late(ctx, before, wait) {
		return &WaitError{Decision: d, parts: w.request != nil}
	}
	return nil
}

// old reports whether limits from before a change may decide about w.
func (w *waiter) old() bool {
	if w.request == nil {
		return w.part.limiter.lines.Old()
	}
	return slices.ContainsFunc(w.request.parts, func(p Part) bool { return p.limiter.lines.Old() })
}

// late reports whether a wait that began no earlier than now ends after the
// context's deadline.
func late(ctx context.Context, now time.Time, wait time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return bounded && wait > 0 && deadline.Sub(now) < wait
}
