package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/arrivals"
	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/meter"
)

// ErrInFlight is for a call that decides under a limit in flight but cannot give the units
// back when the request ends: [Limiter.Acquire] can.
var ErrInFlight = errors.New("stint: a limit in flight takes units until the request ends, which this call does not learn: use Acquire, or AcquireN to wait")

// mostInFlight is the greatest count of a limit in flight: every store counts it exactly.
const mostInFlight = 1 << 53

// InFlight returns the limit of count units at one moment: a request takes units when it
// begins, and gives them back when it ends. [Limiter.Acquire] decides under it; it has
// neither a period nor an algorithm.
func InFlight(count int64) Limit { return Limit{spec: meter.Spec{Count: count}, inFlight: true} }

// InFlight reports whether the limit is one of units in flight; see [InFlight].
func (l Limit) InFlight() bool { return l.inFlight }

func (l Limit) checkInFlight() error {
	switch {
	case l.spec.Count < 1:
		return fmt.Errorf("count is %d: at least 1", l.spec.Count)
	case l.spec.Count > mostInFlight:
		return fmt.Errorf("count is %d: at most %d in flight", l.spec.Count, int64(mostInFlight))
	case l.spec != (meter.Spec{Count: l.spec.Count}):
		return errors.New("a limit in flight has a count alone: no algorithm, burst, debt, parts or the like")
	}
	return nil
}

// A RoomStore is a [Store] that can hold keys to limits in flight. Its decisions ignore
// units in flight.
type RoomStore interface {
	Store
	// InFlight returns the Room for all users of the store; nil if it has none.
	InFlight() *inflight.Room
}

// RoomOf returns the Room of a store. It returns an error if the store has none.
func RoomOf(s Store) (*inflight.Room, error) {
	if s, ok := s.(RoomStore); ok && s.InFlight() != nil {
		return s.InFlight(), nil
	}
	return nil, fmt.Errorf("stint: this store (%T) cannot hold limits in flight", s)
}

// InFlightName returns [inflight.Hold].Name for a limit in flight that is bound under a name.
func InFlightName(name string, l Limit) string { return name + "\x00" + l.ID() }

// apart divides limits into those over time and those in flight, each with its index.
func apart(limits []Limit) (timed, running []Limit, timedAt, runningAt []int) {
	for i, l := range limits {
		if l.inFlight {
			running, runningAt = append(running, l), append(runningAt, i)
		} else {
			timed, timedAt = append(timed, l), append(timedAt, i)
		}
	}
	return timed, running, timedAt, runningAt
}

// A running is the bound of a [Limiter] with limits in flight. As a [Bound] it refuses every
// call, since none of them gives units back.
type running struct {
	store  Store
	name   string
	limits []Limit // all limits
	queues bool    // one of them is a leaky_queue
	room   *inflight.Room
	timed  Bound // the limits that are not in flight; nil if there are none

	flying             []Limit
	timedAt, runningAt []int // their indexes in limits
}

func (r *running) Decide(_ context.Context, _ meter.Op, _ string, _ int64) (Decision, error) {
	return Decision{}, ErrInFlight
}
func (r *running) Allow(context.Context, string, int64) (bool, error) { return false, ErrInFlight }
func (r *running) Limits() []Limit                                    { return r.limits }
func (r *running) Unchanged([]Limit) bool                             { return true }
func (r *running) Name() string                                       { return r.name }

// bindRunning binds limits, some of which are in flight.
func bindRunning(store Store, name string, limits []Limit) (*running, error) {
	if err := CheckBind(name, limits); err != nil {
		return nil, err
	}
	r := &running{store: store, name: name, limits: limits, queues: slices.ContainsFunc(limits, func(l Limit) bool { return l.Algorithm().Queues() })}
	var timed []Limit
	timed, r.flying, r.timedAt, r.runningAt = apart(limits)
	var err error
	if r.room, err = RoomOf(store); err != nil {
		return nil, fmt.Errorf("%w: limit %q", err, wording.Shorten(r.flying[0].Name()))
	}
	for _, l := range r.flying {
		if err := l.Validate(); err != nil {
			return nil, err
		}
		if err := r.room.Check(l.Count()); err != nil {
			return nil, fmt.Errorf("stint: limit %q: %w", wording.Shorten(name), err)
		}
	}
	if len(timed) > 0 {
		r.timed, err = store.Bind(name, timed...)
	}
	return r, err
}

// Acquire takes a unit of key under all limits or none: under limits in flight until release
// is called, under other limits as Take does. Call release when the request ends, for
// example by context.AfterFunc(ctx, release). release is never nil, and may be called again.
// After a denial or an error it does nothing.
//
// A denial by a limit in flight has a RetryAfter of a second: nobody knows when a request
// will end.
func (l *Limiter) Acquire(ctx context.Context, key string) (d Decision, release func(), err error) {
	return l.AcquireN(ctx, key, 1, 0)
}

// AcquireN is Acquire of cost units. If a limit has no room, it waits until all limits have
// room at one moment, for at most wait, in the order of arrival among the callers of this
// Limiter. If the context ends first, the error is the context's.
func (l *Limiter) AcquireN(ctx context.Context, key string, cost int64, wait time.Duration) (d Decision, release func(), err error) {
	r, ok := l.bound.(*running)
	switch {
	case cost < 0:
		return d, nothing, ErrCost
	case !ok: // without limits in flight, there is nothing to give back
		d, err = l.takeWithin(ctx, key, cost, wait)
		return d, nothing, err
	}
	others := func() bool { return cost > 0 && cost <= l.terms.Load().capacity && !l.lines.None(at(key)) }
	if !others() {
		var age *time.Duration
		if wait > 0 && cost <= l.terms.Load().capacity {
			age = new(time.Duration) // a denial begins no ban: it waits
		}
		if d, release, err = r.acquire(ctx, key, cost, age); age == nil || d.Allowed || err != nil && !errors.Is(err, errTooLate) {
			return d, release, err
		}
	}
	if wait > 0 && err == nil {
		w := &acquirer{running: r, limiter: l, key: key, cost: cost, until: time.Now().Add(wait)}
		if d, release, err = w.acquire(ctx); !errors.Is(err, errTooLate) {
			return d, release, err
		}
	}
	if others() {
		if d, err = r.beside(ctx, l, key, cost); err != nil || !d.Allowed {
			return d, nothing, err
		}
	}
	return r.acquire(ctx, key, cost, nil)
}

// takeWithin is Take of a cost that waits for at most wait.
func (l *Limiter) takeWithin(ctx context.Context, key string, cost int64, wait time.Duration) (d Decision, err error) {
	if wait <= 0 {
		return l.Take(ctx, key, cost)
	}
	bounded, stop := context.WithTimeout(ctx, wait)
	defer stop()
	ends, _ := bounded.Deadline()
	own, has := ctx.Deadline()
	switch err = l.Wait(bounded, key, cost); {
	case err == nil:
		if d, err = l.Peek(ctx, key, 0); err != nil {
			d = Decision{Tightest: -1} // it has passed all the same
		}
		d.Allowed, d.Taken = true, cost
		return d, nil
	case has && !own.After(ends) && errors.Is(err, context.DeadlineExceeded):
	case ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*WaitError))):
		return l.Take(ctx, key, cost)
	}
	return d, err
}

// errTooLate ends a wait that would be longer than allowed.
var errTooLate = errors.New("stint: it would wait too long")

// An acquirer waits for room under limits in flight and the limits beside them.
type acquirer struct {
	arrivals.Waiter
	*running
	limiter *Limiter
	key     string
	cost    int64
	until   time.Time
	free    time.Time // since when the limits in flight have had room
	d       Decision
	release func()
}

// acquire waits. The error is errTooLate if the request must be denied.
func (w *acquirer) acquire(ctx context.Context) (Decision, func(), error) {
	if !w.Join(w, arrivals.All, Part{w.limiter, w.key, w.cost}.stand()) {
		return Decision{}, nothing, errTooLate
	}
	bounded, stop := context.WithDeadline(ctx, w.until)
	defer stop()
	_, err := w.Drive(bounded, false)
	if err == nil {
		return w.d, w.release, nil
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = errTooLate
	}
	return Decision{}, nothing, err
}

// Take implements [arrivals.Asker].
func (w *acquirer) Take(ctx context.Context, later time.Duration, _ uint64) (a arrivals.Answer, err error) {
	if later > 0 {
		return arrivals.Answer{Again: later}, nil
	}
	age, now := time.Duration(0), time.Now()
	if !w.free.IsZero() {
		age = now.Sub(w.free)
	}
	w.free = now
	if w.d, w.release, err = w.running.acquire(ctx, w.key, w.cost, &age); err != nil {
		return a, err
	}
	if a = w.answer(w.d); a.Again == arrivals.Unknown {
		w.free = time.Time{}
	}
	if never := w.d.RetryAfter == Never; !a.Passes && (never || a.Again != arrivals.Unknown && time.Now().Add(a.Again).After(w.until)) {
		err = errTooLate
	}
	return a, err
}

// answer says when a denied request may pass. Under a limit in flight, that is not known.
func (w *acquirer) answer(d Decision) arrivals.Answer {
	a := arrivals.Answer{Passes: d.Allowed, Again: time.Duration(d.RetryAfter)}
	for _, at := range w.runningAt {
		if d.Denied.Has(at) {
			a.Again = arrivals.Unknown
		}
	}
	return a
}

// Look implements [arrivals.Asker].
func (w *acquirer) Look(ctx context.Context, _ int) (arrivals.Answer, error) {
	d, err := w.look(ctx, w.key, w.cost)
	return w.answer(d), err
}

// With implements [arrivals.Asker].
func (w *acquirer) With(ctx context.Context, more []int64) (lacks uint64, again time.Duration, err error) {
	d, err := w.look(ctx, w.key, w.cost+more[0])
	if err == nil && !d.Allowed {
		lacks = 1
	}
	return lacks, arrivals.Unknown, err
}

// Ahead implements [arrivals.Asker].
func (w *acquirer) Ahead(context.Context) error { return nil }

// Refill implements [arrivals.Asker].
func (w *acquirer) Refill(int, time.Duration) int64 { return 0 }

// holds returns the units that a request takes under the limits in flight.
func (r *running) holds(key string, cost int64) (holds []inflight.Hold) {
	for _, limit := range r.flying {
		holds = append(holds, inflight.Hold{Name: InFlightName(r.name, limit), Key: key, Limit: limit.spec.Count, Units: cost})
	}
	return holds
}

// look answers as acquire would, and takes nothing.
func (r *running) look(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if holds := r.holds(key, cost); cost > 0 {
		if passes, err := r.room.Look(ctx, holds); err != nil || !passes {
			return r.denied(holds, err), err
		}
	}
	return r.take(ctx, meter.OpPeek, key, cost, nil, nil)
}

// beside answers as if the units that the waiters of the key need were taken.
func (r *running) beside(ctx context.Context, l *Limiter, key string, cost int64) (Decision, error) {
	units := l.lines.Needed(at(key))
	d, err := r.look(ctx, key, cost+int64(min(units.Lo, mostInFlight)))
	if err == nil && !d.Allowed && (d.RetryAfter == Never || d.RetryAfter > Wait(time.Second)) { // with what others need, more than ever fits
		d.RetryAfter = Wait(time.Second)
	}
	return d, err
}

// acquire takes a cost under all limits, or nothing. If age is not nil, the request waits,
// and limits over time may date its turn back by age.
func (r *running) acquire(ctx context.Context, key string, cost int64, age *time.Duration) (d Decision, release func(), err error) {
	holds := r.holds(key, cost)
	if cost == 0 {
		holds = nil
	} else {
		if age != nil && r.timed != nil { // look first: to take units and give them back would wake the waiters
			if d, err = r.look(ctx, key, cost); err != nil || !d.Allowed {
				return d, nothing, err
			}
		}
		passes, err := r.room.Acquire(ctx, holds)
		if err == nil && age != nil && slices.ContainsFunc(holds, func(h inflight.Hold) bool { return h.Vain }) {
			err = errTooLate
		}
		if err != nil || !passes {
			return r.denied(holds, err), nothing, err
		}
	}
	release = sync.OnceFunc(func() {
		if holds != nil {
			r.room.Release(holds)
		}
	})
	if r.queues { // its turn is its place in the queue
		age = nil
	}
	if d, err = r.take(ctx, meter.OpTake, key, cost, holds, age); err != nil || !d.Allowed {
		release()
		return d, nothing, err
	}
	return d, release, nil
}

func nothing() {}

// denied returns the answer of limits in flight that have no room.
func (r *running) denied(holds []inflight.Hold, err error) (d Decision) {
	if err != nil {
		return d
	}
	d.Tightest = -1
	for i := range holds {
		h := &holds[i]
		if !h.Denied {
			continue
		}
		if d.Denied |= 1 << uint(r.runningAt[i]); d.Tightest < 0 {
			d.Limit, d.Remaining, d.Tightest = h.Of, h.Left(), r.runningAt[i]
		}
		if retry := RetryOf(h); retry.longer(d.RetryAfter) {
			d.RetryAfter = retry
		}
	}
	return d
}

// watch calls wake when there may be room, under limits in flight or the limits beside them.
func (r *running) watch(key string, wake func()) (stop func(), poll time.Duration) {
	var stops []func()
	for _, limit := range r.flying {
		stop, again := r.room.Watch(InFlightName(r.name, limit), key, wake)
		stops, poll = append(stops, stop), max(poll, again)
	}
	if r.timed != nil {
		stop, again := watch(r.store, r.timed, key, wake)
		if stops = append(stops, stop); again > 0 && (poll == 0 || again < poll) {
			poll = again
		}
	}
	return func() {
		for _, stop := range stops {
			if stop != nil {
				stop()
			}
		}
	}, poll
}

// RetryOf returns the RetryAfter of a denial by a limit in flight: a second, since nobody
// knows when a request will end, or [Never] for more units than the limit has.
func RetryOf(h *inflight.Hold) Wait {
	if h.Units > h.Limit {
		return Never
	}
	return Wait(time.Second)
}

// take is the decision of the limits that are not in flight; holds are the answers of those
// that are.
func (r *running) take(ctx context.Context, op meter.Op, key string, cost int64, holds []inflight.Hold, age *time.Duration) (d Decision, err error) {
	d = Decision{Allowed: true, Taken: cost, Tightest: -1}
	if r.timed != nil {
		if turns, ok := r.store.(TurnStore); ok && age != nil {
			d, _, err = turns.TakeTurn(ctx, []Layer{{Bound: r.timed, Key: key}}, cost, 0, *age)
		} else {
			d, err = r.timed.Decide(ctx, op, key, cost)
		}
		if err != nil {
			return d, err
		}
		r.renumber(&d)
	}
	for i := range holds {
		if h := &holds[i]; r.timed == nil && (d.Tightest < 0 || h.Left() < d.Remaining) {
			d.Limit, d.Remaining, d.Tightest = h.Of, h.Left(), r.runningAt[i]
		}
	}
	return d, nil
}

// renumber turns an answer of the limits that are not in flight into one of all limits.
func (r *running) renumber(d *Decision) {
	denied := d.Denied
	if d.Denied = 0; d.Tightest >= 0 {
		d.Tightest = r.timedAt[d.Tightest]
	}
	for i := range denied.Limits() {
		d.Denied |= 1 << uint(r.timedAt[i])
	}
}
