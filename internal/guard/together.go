package guard

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint"
)

// Together returns the terms of a request that is held to several limiters at once.
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

// CheckTogether returns why requests cannot be held to limits together, or nil.
func (t *Terms) CheckTogether(refunds bool) error {
	switch {
	case t.inFlight:
		return errors.New("limits in flight do not decide with several keys: rules of a policy do")
	case refunds && t.wait > 0:
		return errors.New("with waiting no Settle is possible: set MaxWait to -1, or use limits that are no leaky_queue")
	case len(t.Limits) > stint.MaxLimits:
		return stint.ErrLayers
	}
	return nil
}

// TakeTogether takes what a request costs under all its limiters: in their queues, where a
// limit lets it wait. It returns how long the request has waited.
func (t *Terms) TakeTogether(ctx context.Context, r *stint.Request, cost int64) (d stint.Decision, waited time.Duration, err error) {
	if t.wait == 0 {
		d, err = r.Take(ctx)
		return d, 0, err
	}
	return t.takeQueued(ctx, cost, r.Wait, func(ctx context.Context, cost int64) (stint.Decision, error) {
		d, err := r.Peek(ctx)
		if cost == 0 { // it has passed
			d.Allowed, d.Denied, d.RetryAfter = true, 0, 0
		}
		return d, err
	})
}
