package stint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/meter"
)

// ErrInFlight is for a call that decides under a limit in flight but cannot give the units
// back when the request ends: [Limiter.Acquire] can.
var ErrInFlight = errors.New("stint: a limit in flight takes units until the request ends, which this call does not learn: use Acquire")

// mostInFlight is what every store counts exactly.
const mostInFlight = 1 << 53

// InFlight returns the limit of count units at one moment: a request takes units when it
// begins, and gives them back when it ends. [Limiter.Acquire] decides under it; it has
// neither a period nor an algorithm.
func InFlight(count int64) Limit { return Limit{spec: meter.Spec{Count: count}, inFlight: true} }

// InFlight reports whether the limit is one of what is in flight at one moment.
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

// A RoomStore is a [Store] that can hold keys to limits in flight. Its decisions do not
// know of them.
type RoomStore interface {
	Store
	// InFlight returns what counts in flight for all who use the store; nil if nothing does.
	InFlight() *inflight.Room
}

// RoomOf returns what counts in flight beside a store. The error says that the store has
// nothing that does.
func RoomOf(s Store) (*inflight.Room, error) {
	if s, ok := s.(RoomStore); ok && s.InFlight() != nil {
		return s.InFlight(), nil
	}
	return nil, fmt.Errorf("stint: this store (%T) cannot hold limits in flight", s)
}

// InFlightName returns what the count of a limit in flight belongs to that is bound under a
// name, for [inflight.Hold].
func InFlightName(name string, l Limit) string { return name + "\x00" + l.ID() }

// apart returns which limits are of time and which in flight, each with its place among all.
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

// A running is what a [Limiter] with limits in flight decides by. As its bound it refuses
// what cannot give back.
type running struct {
	name   string
	limits []Limit // all of them
	room   *inflight.Room
	timed  Bound // of those that are not in flight; nil if there are none

	flying             []Limit
	timedAt, runningAt []int // among limits
}

func (r *running) Decide(_ context.Context, _ meter.Op, _ string, _ int64) (Decision, error) {
	return Decision{}, ErrInFlight
}
func (r *running) Allow(context.Context, string, int64) (bool, error) { return false, ErrInFlight }
func (r *running) Limits() []Limit                                    { return r.limits }
func (r *running) Unchanged([]Limit) bool                             { return true }
func (r *running) Name() string                                       { return r.name }

// bindRunning binds limits of which some are in flight.
func bindRunning(store Store, name string, limits []Limit) (*running, error) {
	if err := CheckBind(name, limits); err != nil {
		return nil, err
	}
	r := &running{name: name, limits: limits}
	var timed []Limit
	timed, r.flying, r.timedAt, r.runningAt = apart(limits)
	for _, l := range r.flying {
		if err := l.Validate(); err != nil {
			return nil, err
		}
	}
	var err error
	if r.room, err = RoomOf(store); err != nil {
		return nil, fmt.Errorf("%w: limit %q", err, wording.Shorten(r.flying[0].Name()))
	}
	if len(timed) > 0 {
		r.timed, err = store.Bind(name, timed...)
	}
	return r, err
}

// Acquire takes a unit of key until release is called: under the limits in flight while the
// request runs, under the others as Take does, all or none. Call release when the request
// ends, or have a context end it, by context.AfterFunc(ctx, release). It is never nil, may
// be called again, and does nothing for what was denied or failed.
//
// A denial by a limit in flight has a RetryAfter of a second: nobody knows when a request
// will end.
func (l *Limiter) Acquire(ctx context.Context, key string) (d Decision, release func(), err error) {
	return l.AcquireN(ctx, key, 1, 0)
}

// AcquireN is Acquire of cost units that waits for at most wait where limits in flight have
// no room: in the order of arrival among those of this process. The other limits decide
// when it has its place; if they deny, it is given back at once. If the context ends first,
// the error is the context's.
func (l *Limiter) AcquireN(ctx context.Context, key string, cost int64, wait time.Duration) (d Decision, release func(), err error) {
	r, ok := l.bound.(*running)
	switch {
	case cost < 0:
		return d, nothing, ErrCost
	case !ok: // there is nothing to give back
		d, err = l.Take(ctx, key, cost)
		return d, nothing, err
	}
	var holds []inflight.Hold
	if cost > 0 {
		for _, limit := range r.flying {
			holds = append(holds, inflight.Hold{Name: InFlightName(r.name, limit), Key: key, Limit: limit.spec.Count, Units: cost, Wait: wait})
		}
		passes, err := r.room.Acquire(ctx, holds, 0)
		if err != nil || !passes {
			return r.denied(holds, err), nothing, err
		}
	}
	release = sync.OnceFunc(func() {
		if holds != nil {
			r.room.Release(holds)
		}
	})
	if d, err = r.take(ctx, key, cost, holds); err != nil || !d.Allowed {
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
			d.Limit, d.Remaining, d.Tightest = h.Limit, max(h.Limit-h.Running, 0), r.runningAt[i]
		}
		if retry := RetryOf(h); retry.longer(d.RetryAfter) {
			d.RetryAfter = retry
		}
	}
	return d
}

// RetryOf returns the RetryAfter of what a limit in flight has denied: a second, since
// nobody knows when a request will end, or [Never] for more units than the limit has.
func RetryOf(h *inflight.Hold) Wait {
	if h.Units > h.Limit {
		return Never
	}
	return Wait(time.Second)
}

// take is the decision of the limits that are not in flight, for what has its place.
func (r *running) take(ctx context.Context, key string, cost int64, holds []inflight.Hold) (d Decision, err error) {
	d = Decision{Allowed: true, Taken: cost, Tightest: -1}
	if r.timed != nil {
		if d, err = r.timed.Decide(ctx, meter.OpTake, key, cost); err != nil {
			return d, err
		}
		denied := d.Denied
		if d.Denied = 0; d.Tightest >= 0 {
			d.Tightest = r.timedAt[d.Tightest]
		}
		for i := range denied.Limits() {
			d.Denied |= 1 << uint(r.timedAt[i])
		}
	}
	for i := range holds {
		if h := &holds[i]; r.timed == nil && (d.Tightest < 0 || h.Limit-h.Running < d.Remaining) {
			d.Limit, d.Remaining, d.Tightest = h.Limit, h.Limit-h.Running, r.runningAt[i]
		}
	}
	return d, nil
}
