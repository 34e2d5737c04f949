// Package guard subjects requests to the limits of one limiter, and lets them wait
// in the limiter's queue where the limits say so. The middleware for HTTP and the
// interceptors for gRPC use it.
package guard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
)

// MissingKey is the key of all requests without a key. No header and no metadata can hold a NUL, so
// no client can send this key.
const MissingKey = "\x00"

// A Guard decides requests by a limiter. Make it with [New]. It may be used from many goroutines at
// once.
type Guard struct {
	*stint.Limiter
	most  time.Duration         // as given to New
	terms atomic.Pointer[Terms] // the limits as last seen
}

// Terms are the limits of a guard at some moment. A value does not change.
type Terms struct {
	// Limits and Labels are those of the limiter.
	Limits []stint.Limit
	Labels []string
	// Fields has the limits as header fields and metadata describe them.
	Fields []ratefields.Limit

	wait  time.Duration // the longest wait; 0 if requests do not wait
	queue int           // the index of the first leaky_queue in Limits; 0 if there is none

	inFlight, queued bool // whether there is a limit in flight, and a leaky_queue
}

// New returns a guard whose requests wait at most for most. If most is 0, they wait as long as a
// leaky_queue of the limiter holds a request, and not under other algorithms. If most is negative,
// they never wait.
func New(l *stint.Limiter, most time.Duration) *Guard {
	g := &Guard{Limiter: l, most: most}
	g.terms.Store(g.learn())
	return g
}

// Terms returns the limits as they stand now.
func (g *Guard) Terms() *Terms {
	t := g.terms.Load()
	if !g.Unchanged(t.Limits) {
		t = g.learn()
		g.terms.Store(t)
	}
	return t
}

func (g *Guard) learn() *Terms {
	t := &Terms{Limits: g.Limits(), Labels: g.Labels(), wait: max(g.most, 0), queue: -1}
	if len(t.Labels) != len(t.Limits) {
		return g.learn() // the limits changed in between
	}
	for i, limit := range t.Limits {
		t.Fields = append(t.Fields, ratefields.Of(t.Labels[i], limit))
		t.inFlight = t.inFlight || limit.InFlight()
		if !limit.Algorithm().Queues() {
			continue
		}
		if t.queue < 0 {
			t.queue = i
		}
		if g.most == 0 {
			t.wait = max(t.wait, time.Duration(ratefields.MulDiv(limit.Burst(), int64(limit.Period()), limit.Count())), 1)
		}
	}
	t.queue, t.queued = max(t.queue, 0), t.queue >= 0
	return t
}

// Waits reports whether requests may wait.
func (g *Guard) Waits() bool { return g.Terms().wait > 0 }

// InFlight reports whether the guard has a limit in flight: then [Guard.Acquire] decides.
func (g *Guard) InFlight() bool { return g.Terms().inFlight }

// Check returns why the guard cannot decide, or nil: it has no limits, or has a limit in flight beside
// a leaky_queue or, as refunds says, for a caller that gives refunds.
func (g *Guard) Check(refunds bool) error {
	switch t := g.Terms(); {
	case len(t.Limits) == 0:
		return errors.New("a limiter without limits: stint.NewLimiter makes one")
	case !t.inFlight:
		return nil
	case refunds:
		return errors.New("a limiter with a limit in flight gives no refunds: rules of a policy can have both")
	case t.queued:
		return errors.New("a limiter cannot have a leaky_queue beside a limit in flight: rules of a policy can")
	}
	return nil
}

// StoreFailed reports whether err, from deciding a request with ctx, is a failure of the store, so that
// FailOpen may let the request pass. All other errors must deny, or clients could open the guard: by
// leaving, by a negative cost, by meeting more limits than a request may have, by filling the room
// for reservations.
func StoreFailed(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, stint.ErrCost) && !errors.Is(err, stint.ErrLayers) && !errors.Is(err, stint.ErrFull)
}

// Acquire takes cost units in flight until release is called. It waits for room as long as requests of
// the guard may wait; waited is for how long. release is never nil.
func (g *Guard) Acquire(ctx context.Context, key string, cost int64) (d stint.Decision, release func(), waited time.Duration, err error) {
	wait := g.Terms().wait
	if wait == 0 {
		d, release, err = g.AcquireN(ctx, key, cost, 0)
		return d, release, 0, err
	}
	began := time.Now()
	d, release, err = g.AcquireN(ctx, key, cost, wait)
	return d, release, time.Since(began), err
}

// TakeQueued takes cost units in the wait queue; waited is how long the request has waited. A request
// that would wait too long is denied, with a retry after beyond which it would not.
func (g *Guard) TakeQueued(ctx context.Context, key string, cost int64) (d stint.Decision, waited time.Duration, err error) {
	return g.Terms().takeQueued(ctx, cost, func(ctx context.Context) error { return g.Wait(ctx, key, cost) },
		func(ctx context.Context, cost int64) (stint.Decision, error) { return g.Peek(ctx, key, cost) })
}

// takeQueued is TakeQueued by two functions: wait waits for the request's turn, and look peeks. At a
// cost of 0, look describes the keys.
func (t *Terms) takeQueued(ctx context.Context, cost int64, wait func(context.Context) error, look func(ctx context.Context, cost int64) (stint.Decision, error)) (d stint.Decision, waited time.Duration, err error) {
	began := time.Now()
	bound, stop := context.WithDeadline(ctx, began.Add(t.wait))
	err = wait(bound)
	stop()
	waited = time.Since(began)
	var early *stint.WaitError
	switch {
	case err == nil:
		d, err = look(ctx, 0)
		d.Taken = cost
		if err != nil {
			err = &AfterWait{err}
		}
	case errors.As(err, &early):
		d, err = t.tooLong(early.Decision), nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		// Other requests came first on the same store, so this one has waited in vain.
		if d, err = look(ctx, cost); err == nil {
			d = t.tooLong(d)
		}
	}
	return d, waited, err
}

// AfterWait is the error for a request that has waited and passes, but whose key the store could not
// describe afterwards.
type AfterWait struct{ Err error }

// Error returns the reason.
func (e *AfterWait) Error() string { return e.Err.Error() }

// Unwrap returns the store's error.
func (e *AfterWait) Unwrap() error { return e.Err }

// tooLong returns d, whose wait is too long, as a denial: by the queue, if no limit denied.
func (t *Terms) tooLong(d stint.Decision) stint.Decision {
	if d.RetryAfter != stint.Never && d.Allowed {
		d.RetryAfter = stint.Wait(max(d.Delay-t.wait, 1))
	}
	d.Allowed, d.Taken, d.Delay = false, 0, 0
	if d.Denied == 0 {
		d.Denied = 1 << t.queue
	}
	return d
}

// NotSent returns the text of a client's error for requests that were not sent, since they would have
// waited too long. server says that the limits are the server's, and not the client's own.
func NotSent(pkg, requests, key string, wait stint.Wait, server bool) string {
	whose := "our limits hold"
	if server {
		whose = "the server holds"
	}
	return fmt.Sprintf("%s: %s %s to %s: retry after %v", pkg, whose, requests, key, wait)
}
