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

// MissingKey is the key of all requests without one. No header and no metadata
// can hold a NUL, so that no client's key meets it.
const MissingKey = "\x00"

// A Guard decides by a limiter. Make it with [New]. It may be used from many
// goroutines at once.
type Guard struct {
	*stint.Limiter
	most  time.Duration
	terms atomic.Pointer[Terms] // as last seen
}

// Terms are the limits of a guard as they stood at some moment. They do not change.
type Terms struct {
	// Limits and Labels are those of the limiter.
	Limits []stint.Limit
	Labels []string
	// Fields is how header fields and metadata tell of them.
	Fields []ratefields.Limit

	wait  time.Duration // the longest; 0 for no waiting
	queue int           // the first leaky_queue of Limits; 0 if there is none

	inFlight, queued bool // whether there is a limit in flight, and a leaky_queue
}

// New returns a guard whose requests wait at most so long. Where
// most is 0, that is as long as a leaky_queue of the limiter holds a request,
// and no time under limits of other algorithms; below 0 is no time under any.
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
		return g.learn() // they were changed in between
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

// InFlight reports whether a limit is one in flight, under which Acquire decides.
func (g *Guard) InFlight() bool { return g.Terms().inFlight }

// Check returns why the guard can decide nothing, or why its limits in flight do not go
// together with the others, or with refunds; or nil.
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

// StoreFailed reports whether err, of deciding a request with ctx, is of the store, so that
// FailOpen may let the request pass. Clients could open the guard otherwise: by leaving, by
// a cost below zero, by meeting more limits than a request may have.
func StoreFailed(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, stint.ErrCost) && !errors.Is(err, stint.ErrLayers)
}

// Acquire takes until release is called, which is never nil. A request may wait for room
// as long as the guard's requests wait; it returns how long it has.
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

// TakeQueued takes in the wait queue, and returns how long the request has waited.
// One that would wait too long is denied, with the least wait after which it
// would not.
func (g *Guard) TakeQueued(ctx context.Context, key string, cost int64) (d stint.Decision, waited time.Duration, err error) {
	return g.Terms().takeQueued(ctx, cost, func(ctx context.Context) error { return g.Wait(ctx, key, cost) },
		func(ctx context.Context, cost int64) (stint.Decision, error) { return g.Peek(ctx, key, cost) })
}

// takeQueued is TakeQueued of what waits and looks: at a cost of 0, at where the keys stand.
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
		// Others came before it on the same store: it waited in vain.
		if d, err = look(ctx, cost); err == nil {
			d = t.tooLong(d)
		}
	}
	return d, waited, err
}

// AfterWait says that a request has waited and passes, and that where its
// key stands now is not known.
type AfterWait struct{ Err error }

// Error returns the reason.
func (e *AfterWait) Error() string { return e.Err.Error() }

// Unwrap returns the store's error.
func (e *AfterWait) Unwrap() error { return e.Err }

// tooLong makes a denial of an answer whose wait is longer than may be: one by the
// queue, where no limit denied.
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

// NotSent is the text of the error that a client of pkg gets for requests that
// would have waited too long: whose limits hold them, their key and the wait.
func NotSent(pkg, requests, key string, wait stint.Wait, server bool) string {
	whose := "our limits hold"
	if server {
		whose = "the server holds"
	}
	return fmt.Sprintf("%s: %s %s to %s: retry after %v", pkg, whose, requests, key, wait)
}
