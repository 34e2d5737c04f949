package stint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint/meter"
)

// A Part is one key of a limiter, and what a request costs it, as one part of a
// request over several keys: see [All].
type Part struct {
	limiter *Limiter
	key     string
	cost    int64
}

// Key returns a part of a request for [All]: the key at a cost of one unit.
func (l *Limiter) Key(key string) Part { return Part{l, key, 1} }

// Cost returns the part at another cost. A cost of 0 is not charged, and takes
// no part in the decision.
func (p Part) Cost(cost int64) Part {
	p.cost = cost
	return p
}

// A Request is a request over several keys. Make it with [All]. It may be used
// again, and from many goroutines at once.
type Request struct {
	store  Store  // nil: there are no parts
	parts  []Part // that cost something
	layers []Layer
	err    error // of All
}

// All returns a request that passes when every part passes, in one decision:
//
//	d, err := stint.All(perIP.Key(ip), perAccount.Key(account).Cost(4000)).Take(ctx)
//
// All parts are charged, each its own cost, or none is. The limiters are on the
// same store, and together have at most [MaxLimits] limits; no key stands twice
// under the same limiter, and there is at least one part. Else every method fails
// with [ErrLayers].
//
// Answers are in units of the request: Remaining is how many more of the same
// would pass. Decision.Denied and Tightest count the limits of all parts that
// cost something, in order.
func All(parts ...Part) *Request {
	r := &Request{}
	for _, p := range parts {
		switch {
		case p.limiter == nil || p.limiter.store == nil:
			r.err = fmt.Errorf("%w: a part without a limiter: Limiter.Key of one that NewLimiter made returns one", ErrLayers)
			return r
		case p.limiter.decides() != nil:
			r.err = p.limiter.decides()
			return r
		case p.cost < 0:
			r.err = ErrCost
			return r
		case r.store != nil && p.limiter.store != r.store:
			r.err = fmt.Errorf("%w: limiters %q and %q are on different stores", ErrLayers, parts[0].limiter.Name(), p.limiter.Name())
			return r
		}
		if r.store = p.limiter.store; p.cost == 0 {
			continue
		}
		r.parts = append(r.parts, p)
		r.layers = append(r.layers, Layer{Bound: p.limiter.bound, Key: p.key, Weight: p.cost})
	}
	return r
}

// terms says what the limits of all parts are, as they stand now: whether a
// leaky_queue is among them, and one that counts what it denies.
func (r *Request) terms() (delays, counts bool) {
	for _, p := range r.parts {
		t := p.limiter.stand(p.limiter.terms.Load())
		delays, counts = delays || t.queue, counts || t.counts
	}
	return delays, counts
}

// Take takes what the request costs, all or nothing.
func (r *Request) Take(ctx context.Context) (Decision, error) { return r.decide(ctx, meter.OpTake) }

// Peek says whether Take would pass, and changes nothing.
func (r *Request) Peek(ctx context.Context) (Decision, error) { return r.decide(ctx, meter.OpPeek) }

func (r *Request) decide(ctx context.Context, op meter.Op) (Decision, error) {
	switch {
	case r.err != nil:
		return Decision{}, r.err
	case r.store == nil:
		return Decision{}, fmt.Errorf("%w: a request of no parts", ErrLayers)
	case len(r.layers) == 0: // no part costs anything
		return Decision{Allowed: true, Tightest: -1}, nil
	}
	return r.store.Decide(ctx, op, r.layers, 1)
}

// Reserve takes what the request costs now; the reservation settles each part
// at its true cost within ttl, and is nil when denied: to settle or cancel that does
// nothing. One request and an
// estimate of 4,000 tokens are so one decision, and settled at one request and
// the tokens that were used:
//
//	d, r, err := stint.All(requests.Key(u), tokens.Key(u).Cost(4000)).Reserve(ctx, time.Minute)
//	…
//	_, err = r.Settle(ctx, 1, used)
//
// Price: where several parts cost something, a look at all of them and one
// reservation for each. What others take in between may deny one of them: those
// before it are then canceled, and meanwhile may have denied others.
func (r *Request) Reserve(ctx context.Context, ttl time.Duration) (Decision, *Reservation, error) {
	if r.err != nil || len(r.layers) == 0 {
		d, err := r.decide(ctx, meter.OpPeek)
		return d, nil, err
	}
	if len(r.parts) > 1 {
		if d, err := r.peekParts(ctx, ttl); err != nil || !d.Allowed {
			return d, nil, err
		}
	}
	reservation := &Reservation{store: r.store}
	joined := Decision{Allowed: true, Taken: 1, Tightest: -1}
	from := 0 // the first limit of the part, among those of the request
	for _, p := range r.parts {
		d, id, err := p.limiter.reserve(ctx, p.key, p.cost, ttl)
		if err != nil || !d.Allowed {
			_, failed := reservation.Cancel(context.WithoutCancel(ctx)) // else it stays charged: strict
			d.Denied, d.Tightest = d.Denied<<from, d.Tightest+from
			return d, nil, errors.Join(err, failed)
		}
		reservation.parts = append(reservation.parts, id)
		joined.ResetAfter, joined.Delay = max(joined.ResetAfter, d.ResetAfter), max(joined.Delay, d.Delay)
		if left := d.Remaining / p.cost; joined.Tightest < 0 || left < joined.Remaining {
			joined.Limit, joined.Remaining, joined.Tightest = d.Limit/p.cost, left, d.Tightest+from
		}
		from += len(p.limiter.stand(p.limiter.terms.Load()).limits)
	}
	return joined, reservation, nil
}

// peekParts says whether the whole request would pass. A denial is counted by the
// limits that count those.
func (r *Request) peekParts(ctx context.Context, ttl time.Duration) (Decision, error) {
	d, err := r.decide(ctx, meter.OpPeek)
	if _, counts := r.terms(); err != nil || d.Allowed || !counts {
		return d, err
	}
	d, id, err := r.store.Reserve(ctx, r.layers, 1, ttl)
	if err == nil && d.Allowed {
		_, err = r.store.Settle(ctx, id, 0)
	}
	return d, err
}

// Wait waits until the request passes, and charges it then. Errors are those of
// [Limiter.Wait]. Requests over the same keys are not served in order of arrival:
// the first to try once there is room passes. What it asks before is not counted
// as denied.
func (r *Request) Wait(ctx context.Context) error {
	return r.wait(ctx, func() (d Decision, _ *Reservation, err error) {
		delays, counts := r.terms()
		if delays || counts {
			if d, err = r.Peek(ctx); err != nil || !d.Allowed {
				return d, nil, err
			}
		}
		if !delays {
			d, err = r.Take(ctx)
			return d, nil, err
		}
		// A reservation, so that a caller that gives up is not charged.
		d, id, err := r.store.Reserve(ctx, r.layers, 1, d.Delay+holdLonger)
		return d, reservationOf(r.store, id), err
	})
}

// holdLonger is how much longer a place in a queue is reserved than its delay:
// enough for others that come between and a timer that is late.
const holdLonger = 10 * time.Second

// WaitReserve is [Request.Wait] for costs that are known only later: it returns
// a reservation as [Request.Reserve] does.
func (r *Request) WaitReserve(ctx context.Context, ttl time.Duration) (reservation *Reservation, err error) {
	err = r.wait(ctx, func() (d Decision, _ *Reservation, err error) {
		if _, counts := r.terms(); counts {
			if d, err := r.Peek(ctx); err != nil || !d.Allowed {
				return d, nil, err
			}
		}
		d, reservation, err = r.Reserve(ctx, ttl)
		return d, reservation, err
	})
	if err != nil {
		return nil, err
	}
	return reservation, nil
}

// wait calls take until it is allowed, and returns after the delay.
func (r *Request) wait(ctx context.Context, take func() (Decision, *Reservation, error)) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, reservation, err := take()
		if err != nil {
			return err
		}
		pause, ever := d.RetryAfter.Duration()
		if d.Allowed {
			pause, ever = d.Delay, true
		}
		if deadline, has := ctx.Deadline(); !ever || has && time.Until(deadline) < pause {
			return cancel(ctx, reservation, &WaitError{Decision: d, parts: true})
		}
		if !d.Allowed {
			pause = min(pause, askAgain) // others may make room
		}
		if err := sleep(ctx, pause); err != nil {
			return cancel(ctx, reservation, err)
		}
		if d.Allowed {
			return nil
		}
	}
}

// cancel gives back what a request has reserved, if anything, that gives up
// because of why, and returns why.
func cancel(ctx context.Context, r *Reservation, why error) error {
	if r == nil {
		return why
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer stop()
	if _, err := r.Cancel(bounded); err != nil {
		return errors.Join(why, err) // it stays charged: strict
	}
	return why
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
