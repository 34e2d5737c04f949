package grpclimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
)

type limited struct {
	own       *guard.Guard
	byRequest *guard.ByRequest[*guard.Guard] // of Options.Limits; nil without them
	key       Key
	o         *Options
}

// under returns the limiter that holds a call: with the limits that Options.Limits gives it,
// or the guard's own.
func (b *limited) under(ctx context.Context, c Call) *guard.Guard {
	if b.byRequest == nil {
		return b.own
	}
	g, err := b.byRequest.Of(b.o.Limits(ctx, c))
	if err != nil {
		b.o.reportError(ctx, c.Method, fmt.Errorf("grpclimit: %w", err))
	}
	return g
}

// decide returns nil for a call that is not counted.
func (b *limited) decide(ctx context.Context, c Call, message bool) (*answer, error) {
	key, ok := b.key(ctx, c.Method)
	if !ok {
		switch key = guard.MissingKey; b.o.Missing {
		case MissingSkip:
			return nil, nil
		case MissingDeny:
			return &answer{decision: stint.Decision{RetryAfter: stint.Never}, tightest: -1, never: true}, nil
		}
	}
	cost, limiter := b.o.cost(ctx, c), b.under(ctx, c)
	a := &answer{key: key}
	var err error
	if limiter.InFlight() && !message { // a message has no end of its own
		a.decision, a.end, a.waited, err = limiter.Acquire(ctx, key, cost)
	} else if b.o.Settle != nil && !message {
		err = b.reserve(ctx, limiter, a, cost)
	} else if limiter.Waits() {
		a.decision, a.waited, err = limiter.TakeQueued(ctx, key, cost)
	} else {
		a.decision, err = limiter.Take(ctx, key, cost)
	}
	var passed *guard.AfterWait
	switch {
	case errors.As(err, &passed):
		b.o.reportError(ctx, c.Method, passed.Err) // the call passed; only its metadata cannot be made
		return nil, nil
	case err != nil:
		return nil, err
	}
	a.nameLimits(limiter)
	return a, nil
}

// reserve takes the cost as a reservation, which the end of the call settles.
func (b *limited) reserve(ctx context.Context, limiter *guard.Guard, a *answer, cost int64) error {
	d, reservation, err := limiter.Reserve(ctx, a.key, cost, settleLasts)
	if a.decision = d; err == nil && reservation != nil && cost > 0 {
		a.settle, a.looks = b.o.settleReserved(reservation, limiter, cost), true
	}
	return err
}

func (a *answer) nameLimits(by *guard.Guard) {
	t := by.Terms()
	a.limits, a.tightest = make([]limitAnswer, len(t.Limits)), a.decision.Tightest
	for i := range t.Limits {
		a.limits[i] = limitAnswer{t.Labels[i], &t.Fields[i], a.decision.ResetAfter, len(t.Limits)}
		if a.decision.Denied.Has(i) {
			a.violated = append(a.violated, t.Labels[i])
		}
	}
	a.told = a.violated
	if a.tightest >= len(a.limits) || a.tightest >= 0 && a.limits[a.tightest].fields.InFlight {
		a.tightest = -1 // the limits have been changed since, or are in flight: no metadata
	}
}
