package grpclimit

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint"
)

// limited decides by a limiter and a key.
type limited struct {
	limiter *stint.Limiter
	key     Key
	limits  []stint.Limit
	labels  []string
	wait    time.Duration // the longest; 0 for no waiting
	o       *Options
}

// longestWait returns how long calls may wait under limits; 0 if they do not.
func (o *Options) longestWait(limits []stint.Limit) time.Duration {
	switch {
	case o.Shadow:
		return 0
	case o.MaxWait != 0:
		return max(o.MaxWait, 0)
	}
	var wait time.Duration
	for _, l := range limits {
		if l.Algorithm() == stint.LeakyQueue {
			wait = max(wait, time.Duration(mulDiv(l.Burst(), int64(l.Period()), l.Count())), 1)
		}
	}
	return wait
}

// decide returns nil for a call that is not counted.
func (b *limited) decide(ctx context.Context, c Call, _ bool) (*answer, error) {
	key, ok := b.key(ctx, c.Method)
	if !ok {
		switch key = missingKey; b.o.Missing {
		case MissingSkip:
			return nil, nil
		case MissingDeny:
			return &answer{decision: stint.Decision{RetryAfter: stint.Never}, tightest: -1, never: true}, nil
		}
	}
	cost := b.o.cost(ctx, c)
	a := &answer{key: key}
	var err error
	if b.wait > 0 {
		err = b.inTurn(ctx, a, cost)
	} else {
		a.decision, err = b.limiter.Take(ctx, key, cost)
	}
	if err != nil {
		return nil, err
	}
	b.tell(a)
	return a, nil
}

// inTurn takes once the call's turn has come.
func (b *limited) inTurn(ctx context.Context, a *answer, cost int64) error {
	began := time.Now()
	bound, stop := context.WithDeadline(ctx, began.Add(b.wait))
	err := b.limiter.Wait(bound, a.key, cost)
	stop()
	a.waited = time.Since(began)
	var early *stint.WaitError
	switch {
	case err == nil:
		a.decision, err = b.limiter.Peek(ctx, a.key, 0)
		a.decision.Taken = cost
		return err
	case errors.As(err, &early):
		a.decision = tooLong(early.Decision, b.wait)
		return nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		// Others came before it on the same store: it waited in vain.
		d, err := b.limiter.Peek(ctx, a.key, cost)
		a.decision = tooLong(d, b.wait)
		return err
	}
	return err
}

// tooLong makes a denial of an answer whose wait is longer than may be.
func tooLong(d stint.Decision, most time.Duration) stint.Decision {
	if d.RetryAfter != stint.Never && d.Allowed {
		d.RetryAfter = stint.Wait(max(d.Delay-most, 1))
	}
	d.Allowed, d.Taken, d.Delay = false, 0, 0
	if d.Denied == 0 {
		d.Denied = 1 // of one limit, which is nearly always
	}
	return d
}

// tell fills in which limits the call was held to.
func (b *limited) tell(a *answer) {
	a.held, a.tightest = make([]held, len(b.limits)), a.decision.Tightest
	for i, l := range b.limits {
		a.held[i] = held{b.labels[i], l, a.decision.ResetAfter}
		if a.decision.Denied.Has(i) {
			a.violated = append(a.violated, b.labels[i])
		}
	}
}
