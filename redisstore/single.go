package redisstore

import (
	"context"
	"time"

	"github.com/stint-dev/stint"
)

// A single is one limit in its mode. It may be used from many goroutines at
// once.
type single struct {
	*modes
	serial uint64 // no other has the same
	mode   Mode
	name   string      // that its states have
	limit  stint.Limit // as it was bound
	form   *form       // as the server holds it, unless it has been bound anew
	strict *bound      // nil in mode Share
	share  stint.Bound // nil but in mode Share
	denied *denials    // nil if none are kept
	lease  *leases     // nil unless it is decided so
	async  *accounts   // nil unless it is decided so
}

// current reports whether the limit is still the one that was bound: under
// another, what this node has in hand is void, and the server decides.
func (o *single) current() bool { return o.strict.limits[0].form.Load() == o.form }

// decide answers for one key by itself.
func (o *single) decide(ctx context.Context, op stint.Op, key string, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if op == stint.OpTake && cost > 0 || op == stint.OpPeek && o.async != nil {
		var h hold
		result, d, err := o.take(ctx, op, key, cost, &h)
		if result == passed && o.lease != nil {
			d = o.lease.describe(key, cost)
		}
		if result != byServer {
			return d, err
		}
		if !h.deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = o.store.by(ctx, h.deadline)
			defer cancel()
		}
	}
	return o.ask(ctx, op, key, cost)
}

// allow is decide of OpTake with the short answer.
func (o *single) allow(ctx context.Context, key string, cost int64) (bool, error) {
	if o.lease == nil || cost <= 0 {
		d, err := o.decide(ctx, stint.OpTake, key, cost)
		return d.Allowed, err
	}
	var h hold
	result, d, err := o.lease.take(ctx, key, cost, &h)
	if result == passed {
		return true, nil
	}
	if result == byServer {
		if !h.deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = o.store.by(ctx, h.deadline)
			defer cancel()
		}
		d, err = o.ask(ctx, stint.OpTake, key, cost)
	}
	return d.Allowed, err
}

// take decides here, if this mode can.
func (o *single) take(ctx context.Context, op stint.Op, key string, cost int64, h *hold) (outcome, stint.Decision, error) {
	switch {
	case o.lease != nil:
		return o.lease.take(ctx, key, cost, h)
	case o.async != nil:
		return o.async.take(ctx, key, cost, op == stint.OpPeek, h)
	case o.mode == Share:
		return o.reserve(ctx, key, cost, h)
	}
	return byServer, stint.Decision{}, nil
}

// ask has the server decide, unless it is known to deny.
func (o *single) ask(ctx context.Context, op stint.Op, key string, cost int64) (stint.Decision, error) {
	if op == stint.OpTake && cost > 0 && o.current() {
		if known, since := o.denied.known(key, cost, func() int64 { return o.givenBack(key) }); known != nil {
			return known.after(0, o.form, cost, cost == known.cost, since), nil
		}
	}
	var before given
	if o.denied != nil {
		before = o.returns.now(func() int64 { return o.givenBack(key) })
	}
	d, err := o.strict.Decide(ctx, op, key, cost)
	if op == stint.OpTakeUpTo && !d.Allowed {
		cost = min(cost, 1) // that is what was answered
	}
	switch {
	case err != nil || op == stint.OpPeek || cost == 0 || !o.current():
	case d.Allowed:
		o.denied.drop(key)
	default:
		o.denied.learn(key, cost, before, d.RetryAfter, d)
	}
	return d, err
}

// shareFor is how long a share that other layers may still deny is reserved: it
// is settled at once, and stands as charged if this process dies.
const shareFor = time.Minute

// reserve takes a share that can be put back.
func (o *single) reserve(ctx context.Context, key string, cost int64, h *hold) (outcome, stint.Decision, error) {
	d, token, err := o.local.Load().Reserve(ctx, []stint.Layer{{Bound: o.share, Key: key}}, cost, shareFor)
	h.units, h.token = cost, token
	if err != nil || !d.Allowed {
		return refused, d, err
	}
	return passed, d, nil
}

// settle ends a hold: the request was let through, or what it took here goes
// back.
func (o *single) settle(key string, h hold, needed bool) {
	switch {
	case o.lease != nil:
		o.lease.settle(key, h, needed)
	case o.async != nil && !needed:
		o.async.putBack(key, h)
	case o.mode == Share:
		if !needed {
			h.units = 0
		}
		// It was reserved just now, in memory.
		_, _ = o.local.Load().Settle(context.Background(), h.token, h.units)
	}
}

// drop forgets what is known and in hand of a key.
func (o *single) drop(key string) {
	if o.lease != nil {
		o.lease.drop(key)
	}
	if o.async != nil {
		o.async.drop(key)
	}
}

// renew asks anew of a key: something was given back.
func (o *single) renew(key string) {
	if o.lease != nil {
		o.lease.renew(key)
	}
	if o.async != nil {
		o.async.renew(key)
	}
}
