package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

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
	lines lines
	terms atomic.Pointer[terms] // as last seen by a waiter
}

// NewLimiter binds limits to a store under a name, such as "login": at most 256
// bytes of UTF-8, no control characters. What keys use belongs to the name:
// limiters of one name on one store share it, and two names never do. Several
// limits of one algorithm and period need names of their own, see [Limit.WithName].
// The error says which limit cannot be held, and why. Under a limit [InFlight], Acquire
// decides, and every other method fails with [ErrInFlight].
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
	l.learn()
	return l, nil
}

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

// The short ways to an answer, such as Allow, are inlined where they are called, or the
// answer would be copied once more: so each looks for the bound by itself.

// Allow takes one unit from key and reports whether it passed.
func (l *Limiter) Allow(ctx context.Context, key string) (ok bool, err error) {
	if err = errUnmade; l.bound != nil {
		ok, err = l.bound.Allow(ctx, key, 1)
	}
	return ok, err
}

// AllowN takes cost units from key, all or none, and reports whether they
// passed.
func (l *Limiter) AllowN(ctx context.Context, key string, cost int64) (ok bool, err error) {
	if err = errUnmade; l.bound != nil {
		ok, err = l.bound.Allow(ctx, key, cost)
	}
	return ok, err
}

// AllowEach takes cost units from each key by itself, as AllowN for one after
// the other, and writes into passed which passed. It is for hot paths that have
// many keys at hand: a memstore reads the clock once, and waits for the memory of
// up to 64 keys at once. passed is as long as keys. On an error the keys before
// it have been decided, and maybe others.
func (l *Limiter) AllowEach(ctx context.Context, keys []string, cost int64, passed []bool) error {
	if len(passed) < len(keys) {
		return fmt.Errorf("stint: AllowEach of %d keys with room for %d answers", len(keys), len(passed))
	}
	if b, ok := l.bound.(interface {
		AllowEach(ctx context.Context, keys []string, cost int64, passed []bool) error
	}); ok {
		return b.AllowEach(ctx, keys, cost, passed)
	}
	for i, key := range keys {
		var err error
		if passed[i], err = l.binding().Allow(ctx, key, cost); err != nil {
			return err
		}
	}
	return nil
}

// Take takes cost units from key, all or none, and gives the whole answer.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if err = errUnmade; l.bound != nil {
		d, err = l.bound.Decide(ctx, meter.OpTake, key, cost)
	}
	return d, err
}

// Peek says whether a Take of cost would pass, and changes nothing.
func (l *Limiter) Peek(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if err = errUnmade; l.bound != nil {
		d, err = l.bound.Decide(ctx, meter.OpPeek, key, cost)
	}
	return d, err
}

// TakeUpTo takes the most that passes now, at most cost; Decision.Taken says
// how many. When none passes it is denied, with the answer for one unit.
func (l *Limiter) TakeUpTo(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if err = errUnmade; l.bound != nil {
		d, err = l.bound.Decide(ctx, meter.OpTakeUpTo, key, cost)
	}
	return d, err
}

// Reserve takes cost units now, to be settled at their true cost within ttl. When
// denied there is nothing to settle: the reservation is nil, and to settle or
// cancel that does nothing.
func (l *Limiter) Reserve(ctx context.Context, key string, cost int64, ttl time.Duration) (Decision, *Reservation, error) {
	d, id, err := l.reserve(ctx, key, cost, ttl)
	return d, l.Reservation(id), err
}

func (l *Limiter) reserve(ctx context.Context, key string, cost int64, ttl time.Duration) (Decision, ReservationID, error) {
	if err := l.decides(); err != nil {
		return Decision{}, "", err
	}
	return l.store.Reserve(ctx, l.layers(key), cost, ttl)
}

// Reservation returns the reservation of an ID, which may have been made by
// another process on the same store; nil if the ID is empty.
func (l *Limiter) Reservation(id ReservationID) *Reservation { return reservationOf(l.store, id) }

// Refund gives up to cost units back to key: an operator's act, which lets
// through more than the limit by what it returns.
func (l *Limiter) Refund(ctx context.Context, key string, cost int64) (Decision, error) {
	if err := l.decides(); err != nil {
		return Decision{}, err
	}
	defer l.lines.roomMade(key)
	return l.store.Refund(ctx, l.layers(key), cost)
}

// Reset makes key as if never seen under the limits that the limiter has now, and in a
// memstore also under others that its name has had.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := l.decides(); err != nil {
		return err
	}
	defer l.lines.roomMade(key)
	return l.store.Reset(ctx, l.layers(key))
}

// SetLimits gives the limiter other limits, from the next request on and for
// those that wait. What keys have used is kept, as docs/SEMANTICS.md says of
// changes; other limiters of the name keep the limits that they have. The error
// says which limit cannot be held, or that the store cannot do it: then make
// another limiter of the same name.
func (l *Limiter) SetLimits(limits ...Limit) error {
	if l.bound == nil {
		return errUnmade
	}
	b, ok := l.bound.(interface{ Change(limits ...Limit) error })
	if !ok {
		return fmt.Errorf("stint: the limits of %q cannot be set in this store: make another limiter of the same name", l.Name())
	}
	defer l.lines.everyRoomMade()
	return b.Change(limits...)
}

// Name returns the name that the limits were bound under.
func (l *Limiter) Name() string { return l.binding().Name() }

// Labels returns what each limit is called in fields and answers: by its own
// name, else by the name of the limiter, with the limit's ID behind a slash
// where there are several.
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

// Unchanged reports whether Limits would return these limits, without an
// allocation: for those who keep what they have made of them.
func (l *Limiter) Unchanged(limits []Limit) bool {
	b, ok := l.bound.(interface{ Unchanged(limits []Limit) bool })
	return !ok || b.Unchanged(limits)
}

func (l *Limiter) layers(key string) []Layer { return []Layer{{Bound: l.bound, Key: key}} }

// A WaitError says why Wait gave up before it waited: the context's deadline
// comes before the request could pass, which matches context.DeadlineExceeded,
// or the cost is above the limit and can never pass. Nothing was charged.
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

// Unwrap returns context.DeadlineExceeded, but not for what can never pass.
func (e *WaitError) Unwrap() error {
	if e.Decision.RetryAfter == Never {
		return nil
	}
	return context.DeadlineExceeded
}
