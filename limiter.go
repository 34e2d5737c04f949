package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/internal/arrivals"
	"github.com/stint-dev/stint/meter"
)

// A Limiter holds keys to limits: each key to all of them at once. It is bound
// to its store once; a decision then costs no allocation.
//
// A Limiter may be used from many goroutines at once. The zero value decides
// nothing: its methods return an error.
type Limiter struct {
	store Store
	bound Bound
	asked Bound // answers calls: bound, or a besides if bound is no diverter
	lines arrivals.Lines
	terms atomic.Pointer[terms] // as last seen by a waiter
}

// NewLimiter binds limits to a store under a name, such as "login": at most 256
// bytes of UTF-8, no control characters. What keys use belongs to the name:
// limiters of one name on one store share it, and two names never do. Several
// limits of one algorithm and period need names of their own, see [Limit.WithName].
// The error says which limit the store cannot hold, and why. With a limit [InFlight],
// use Acquire or AcquireN: every other method that decides fails with [ErrInFlight]. Refund,
// Reset, Block and Unblock are for the limits beside it.
func NewLimiter(store Store, name string, limits ...Limit) (*Limiter, error) {
	if store == nil {
		return nil, errors.New("stint: NewLimiter without a store: memstore.New makes one")
	}
	bind := store.Bind
	if slices.ContainsFunc(limits, Limit.InFlight) {
		bind = func(name string, limits ...Limit) (Bound, error) { return bindRunning(store, name, limits) }
	}
	bound, err := bind(name, limits...)
	if err != nil {
		return nil, err
	}
	l := &Limiter{store: store, bound: bound}
	l.lines.Owner = owner{l}
	l.asked = bound
	if _, ok := bound.(diverter); l.decides() != nil {
		l.lines.Most = mostWaiting
	} else if !ok {
		l.asked = besides{l}
	}
	l.learn()
	return l, nil
}

// mostWaiting is how many callers may wait for one key under limits in flight: each holds a
// connection or the like.
const mostWaiting = 1000

var errUnmade = errors.New("stint: a Limiter without limits: NewLimiter makes one")

// unmade is the bound of a Limiter that NewLimiter did not make.
type unmade struct{}

func (unmade) Decide(context.Context, meter.Op, string, int64) (Decision, error) {
	return Decision{}, errUnmade
}
func (unmade) Allow(context.Context, string, int64) (bool, error) { return false, errUnmade }
func (unmade) Limits() []Limit                                    { return nil }
func (unmade) Name() string                                       { return "" }

func (l *Limiter) binding() Bound {
	if l.bound == nil {
		return unmade{}
	}
	return l.bound
}

// decides returns why the store cannot be asked about the limits, or nil.
func (l *Limiter) decides() error {
	if l.store == nil {
		return errUnmade
	}
	if _, ok := l.bound.(*running); ok {
		return ErrInFlight
	}
	return nil
}

// Allow and its like must be inlined where they are called, or the answer would be copied
// once more. So each checks l.asked itself.

// Allow takes one unit from key and reports whether it passed.
func (l *Limiter) Allow(ctx context.Context, key string) (ok bool, err error) {
	if err = errUnmade; l.asked != nil {
		ok, err = l.asked.Allow(ctx, key, 1)
	}
	return ok, err
}

// AllowN takes cost units from key, all or none, and reports whether they
// passed.
func (l *Limiter) AllowN(ctx context.Context, key string, cost int64) (ok bool, err error) {
	if err = errUnmade; l.asked != nil {
		ok, err = l.asked.Allow(ctx, key, cost)
	}
	return ok, err
}

// AllowEach takes cost units from each key by itself, like AllowN for one key after the
// other, and writes to passed[i] whether keys[i] passed. passed must be at least as long
// as keys. It is for hot paths that have many keys at hand: a memstore reads the clock
// once, and waits for the memory of up to 64 keys at once. After an error, the keys
// before it have been decided, and maybe others.
func (l *Limiter) AllowEach(ctx context.Context, keys []string, cost int64, passed []bool) error {
	if len(passed) < len(keys) {
		return fmt.Errorf("stint: AllowEach of %d keys with room for %d answers", len(keys), len(passed))
	}
	if b, ok := l.asked.(interface {
		AllowEach(ctx context.Context, keys []string, cost int64, passed []bool) error
	}); ok {
		return b.AllowEach(ctx, keys, cost, passed)
	}
	for i, key := range keys {
		var err error
		if passed[i], err = l.AllowN(ctx, key, cost); err != nil {
			return err
		}
	}
	return nil
}

// Take takes cost units from key, all or none, and returns the whole decision.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if err = errUnmade; l.asked != nil {
		d, err = l.asked.Decide(ctx, meter.OpTake, key, cost)
	}
	return d, err
}

// Peek says whether a Take of cost would pass, and changes nothing.
func (l *Limiter) Peek(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if err = errUnmade; l.asked != nil {
		d, err = l.asked.Decide(ctx, meter.OpPeek, key, cost)
	}
	return d, err
}

// TakeUpTo takes the most units that pass now, at most cost; Decision.Taken says how
// many. If no unit passes, it is denied with the answer for one unit.
func (l *Limiter) TakeUpTo(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if err = errUnmade; l.asked != nil {
		d, err = l.asked.Decide(ctx, meter.OpTakeUpTo, key, cost)
	}
	return d, err
}

// excuses is how long an open reservation excuses denials ([Layer.Excuses]).
const excuses = 10 * time.Second

// Reserve takes cost units now, to be settled at their true cost within ttl. A denied
// request has the nil reservation, whose methods do nothing.
func (l *Limiter) Reserve(ctx context.Context, key string, cost int64, ttl time.Duration) (Decision, *Reservation, error) {
	if l.lines.None(at(key)) || cost <= 0 || l.decides() != nil {
		d, id, err := l.reserve(ctx, key, cost, ttl, excuses)
		return d, l.Reservation(id), err
	}
	var id ReservationID
	d, err := beside(ctx, l.store, []Part{{l, key, cost}}, func() (Decision, error) {
		return l.direct(ctx, meter.OpPeek, key, cost)
	}, func() (d Decision, err error) {
		d, id, err = l.reserve(ctx, key, cost, ttl, excuses)
		return d, err
	})
	return d, l.Reservation(id), err
}

// reserve reserves a cost that excuses denials for a time.
func (l *Limiter) reserve(ctx context.Context, key string, cost int64, ttl, excuses time.Duration) (Decision, ReservationID, error) {
	if err := l.decides(); err != nil {
		return Decision{}, "", err
	}
	layers := l.layers(key)
	layers[0].Excuses = excuses
	return l.store.Reserve(ctx, layers, cost, ttl)
}

// Reservation returns the reservation of an ID, which may have been made by
// another process on the same store; nil if the ID is empty.
func (l *Limiter) Reservation(id ReservationID) *Reservation { return reservationOf(l.store, id) }

// Refund gives up to cost units back to key. It is for operators, since it lets through
// as many units more than the limit.
func (l *Limiter) Refund(ctx context.Context, key string, cost int64) (Decision, error) {
	layers, err := l.overTime(key)
	if err != nil {
		return Decision{}, err
	}
	defer l.lines.RoomMade(at(key))
	d, err := l.store.Refund(ctx, layers, cost)
	if r, ok := l.bound.(*running); ok && err == nil {
		r.renumber(&d)
	}
	return d, err
}

// Reset makes key as if never seen under the limits that the limiter has now, and in a
// memstore also under others that its name has had. What is in flight stays.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	layers, err := l.overTime(key)
	if err != nil {
		return err
	}
	defer l.lines.RoomMade(at(key))
	return l.store.Reset(ctx, layers)
}

// SetLimits gives the limiter other limits, from the next request on and for callers
// that wait. What keys have used is kept, as docs/SEMANTICS.md says of changes; other
// limiters of the name keep their limits. The error says which limit the store cannot
// hold, or that it cannot change limits: then make another limiter of the same name.
func (l *Limiter) SetLimits(limits ...Limit) error {
	if l.bound == nil {
		return errUnmade
	}
	b, ok := l.bound.(interface{ Change(limits ...Limit) error })
	if !ok {
		return fmt.Errorf("stint: the limits of %q cannot be set in this store: make another limiter of the same name", l.Name())
	}
	old := l.stand(l.terms.Load())
	if err := b.Change(limits...); err != nil {
		return err
	}
	t := l.stand(old)
	for _, at := range l.lines.EveryRoomMade(t.capacity, old.drains, t.pace()) {
		l.enforce(t, at.Key)
	}
	return nil
}

// enforce makes a decision for a key that charges nothing, so that the store counts by a faster pace as
// those who wait do.
func (l *Limiter) enforce(t *terms, key string) {
	ctx, stop := context.WithTimeout(context.Background(), giveBackWithin)
	defer stop()
	if d, err := l.direct(ctx, meter.OpPeek, key, 1); err != nil || !d.Allowed && (t.counts || t.bans) {
		return
	}
	if _, id, err := l.reserve(ctx, key, 1, giveBackWithin, 0); err == nil && id != "" {
		_, _ = l.store.Settle(ctx, id, 0)
	}
}

// With returns a limiter of the same name and store with other limits. It is for limits
// that depend on the request, such as those of a customer's plan. A key that comes under
// other limits keeps what it has used, as docs/SEMANTICS.md says of changes. In memory,
// With costs a few microseconds, however many limits the name has. The limiter may be kept;
// its waiters have lines of their own. The error says which limit the store cannot hold, or
// matches [ErrFull] if too many limits of the name still count.
func (l *Limiter) With(limits ...Limit) (*Limiter, error) {
	if l.store == nil {
		return nil, errUnmade
	}
	if s, ok := l.store.(interface {
		RoomFor(name string, l Limit) error
	}); ok {
		for _, limit := range limits {
			if err := s.RoomFor(l.Name(), limit); err != nil {
				return nil, err
			}
		}
	}
	return NewLimiter(l.store, l.Name(), limits...)
}

// Name returns the name that the limits were bound under.
func (l *Limiter) Name() string { return l.binding().Name() }

// Labels returns the name of each limit in header fields and answers: its own name, else
// the name of the limiter, followed by a slash and the limit's ID if there are several
// limits.
func (l *Limiter) Labels() []string {
	limits := l.binding().Limits()
	labels := make([]string, len(limits))
	for i, limit := range limits {
		switch {
		case limit.name != "":
			labels[i] = limit.name
		case len(limits) == 1:
			labels[i] = l.Name()
		default:
			labels[i] = l.Name() + "/" + limit.ID()
		}
	}
	return labels
}

// Limits returns the limits in order.
func (l *Limiter) Limits() []Limit { return l.binding().Limits() }

// Unchanged reports whether Limits would return these limits, without an allocation. It
// is for callers that cache what they have computed from limits.
func (l *Limiter) Unchanged(limits []Limit) bool {
	b, ok := l.bound.(interface{ Unchanged(limits []Limit) bool })
	return !ok || b.Unchanged(limits)
}

// direct asks the store, and ignores callers that wait.
func (l *Limiter) direct(ctx context.Context, op meter.Op, key string, cost int64) (Decision, error) {
	if _, ok := l.bound.(diverter); ok {
		return l.store.Decide(ctx, op, l.layers(key), cost)
	}
	return l.bound.Decide(ctx, op, key, cost)
}

func (l *Limiter) layers(key string) []Layer { return []Layer{{Bound: l.bound, Key: key}} }

// overTime is layers for a call that decides nothing: it leaves out limits in flight. It
// returns ErrInFlight if there are no others.
func (l *Limiter) overTime(key string) ([]Layer, error) {
	r, running := l.bound.(*running)
	switch {
	case l.store == nil:
		return nil, errUnmade
	case !running:
		return l.layers(key), nil
	case r.timed == nil:
		return nil, ErrInFlight
	}
	return []Layer{{Bound: r.timed, Key: key}}, nil
}

// A WaitError says why Wait gave up before it waited. Either the context's deadline comes
// before the request could pass, and the error matches context.DeadlineExceeded, or the
// cost is above the limit and can never pass. Nothing was charged.
type WaitError struct {
	// Decision is the answer to the request.
	Decision Decision

	parts bool // of All: Decision is in units of the request
}

// Error says how long the wait would have been.
func (e *WaitError) Error() string {
	switch never := e.Decision.RetryAfter == Never; {
	case never && e.parts:
		return "stint: a part costs more than its limit and can never pass"
	case never:
		return fmt.Sprintf("stint: the cost is above the limit of %d and can never pass", e.Decision.Limit)
	}
	return fmt.Sprintf("stint: the deadline comes before the request could pass, in %v",
		max(time.Duration(e.Decision.RetryAfter), e.Decision.Delay))
}

// Unwrap returns context.DeadlineExceeded, or nil for a request that can never pass.
func (e *WaitError) Unwrap() error {
	if e.Decision.RetryAfter == Never {
		return nil
	}
	return context.DeadlineExceeded
}
