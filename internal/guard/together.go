package guard

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint"
)

// Together returns the terms of requests that are held to several limiters at once.
func Together(all []*Terms) *Terms {
	t := &Terms{queue: -1}
	for _, one := range all {
		if one.queued && t.queue < 0 {
			t.queue = len(t.Limits) + one.queue
		}
		t.Limits = append(t.Limits, one.Limits...)
		t.Labels = append(t.Labels, one.Labels...)
		t.Fields = append(t.Fields, one.Fields...)
		t.wait = max(t.wait, one.wait)
		t.inFlight, t.queued = t.inFlight || one.inFlight, t.queued || one.queued
	}
	t.queue = max(t.queue, 0)
	return t
}

// CheckTogether returns why no request can be held to these limits at once, or nil. refunds says that
// the caller settles requests.
func (t *Terms) CheckTogether(refunds bool) error {
	switch {
	case t.inFlight:
		return errors.New("limits in flight do not decide with several keys: rules of a policy do")
	case refunds && t.wait > 0:
		return errors.New("with waiting no Settle is possible: set MaxWait to -1, or to 0 with limits that are no leaky_queue")
	case len(t.Limits) > stint.MaxLimits:
		return stint.ErrLayers
	}
	return nil
}

// TakeTogether charges a request under all its limiters. If a limit lets the request wait, it waits
// for its turn; waited is for how long.
func (t *Terms) TakeTogether(ctx context.Context, r *stint.Request, cost int64) (d stint.Decision, waited time.Duration, err error) {
	if t.wait == 0 {
		d, err = r.Take(ctx)
		return d, 0, err
	}
	return t.takeQueued(ctx, cost, r.Wait, func(ctx context.Context, cost int64) (stint.Decision, error) {
		d, err := r.Peek(ctx)
		if cost == 0 { // the request has passed
			d.Allowed, d.Denied, d.RetryAfter = true, 0, 0
		}
		return d, err
	})
}
