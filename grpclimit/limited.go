package grpclimit

import (
	"context"
	"errors"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
)

// limited decides by a limiter and a key.
type limited struct {
	limiter *guard.Guard
	key     Key
	o       *Options
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
	cost := b.o.cost(ctx, c)
	a := &answer{key: key}
	var err error
	if b.limiter.InFlight() && !message { // a message has no end of its own
		a.decision, a.end, a.waited, err = b.limiter.Acquire(ctx, key, cost)
	} else if b.limiter.Waits() {
		a.decision, a.waited, err = b.limiter.TakeQueued(ctx, key, cost)
	} else {
		a.decision, err = b.limiter.Take(ctx, key, cost)
	}
	var passed *guard.AfterWait
	switch {
	case errors.As(err, &passed):
		b.o.reportError(ctx, c.Method, passed.Err) // only the fields are missing
		return nil, nil
	case err != nil:
		return nil, err
	}
	b.nameLimits(a)
	return a, nil
}

// nameLimits fills in which limits the call was held to.
func (b *limited) nameLimits(a *answer) {
	t := b.limiter.Terms()
	a.limits, a.tightest = make([]limitAnswer, len(t.Limits)), a.decision.Tightest
	for i := range t.Limits {
		a.limits[i] = limitAnswer{t.Labels[i], &t.Fields[i], a.decision.ResetAfter, len(t.Limits)}
		if a.decision.Denied.Has(i) {
			a.violated = append(a.violated, t.Labels[i])
		}
	}
	a.told = a.violated
	if a.tightest >= len(a.limits) || a.tightest >= 0 && a.limits[a.tightest].fields.InFlight {
		a.tightest = -1 // the limits have been changed since, or it has no fields
	}
}
