package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-dev/stint/internal/arrivals"
	"github.com/stint-dev/stint/meter"
)

// A Part is one key of a limiter and the cost of a request to it, as one part of a
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
	store  Store  // nil without parts
	parts  []Part // the parts with a cost above 0
	layers []Layer
	err    error // what is wrong with the parts
}

// All returns a request that passes when every part passes, in one decision:
//
//	d, err := stint.All(perIP.Key(ip), perAccount.Key(account).Cost(4000)).Take(ctx)
//
// All parts are charged, each its own cost, or none is. There must be at least one
// part; the limiters must be on the same store, and together have at most [MaxLimits]
// limits; no key may come twice under the same limiter. Otherwise every method fails
// with [ErrLayers].
//
// Answers are in units of the request: Remaining is how many more requests with the
// same costs would pass. Decision.Denied and Tightest count the limits of all parts
// with a cost above 0, in order.
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
		r.layers = append(r.layers, Layer{Bound: p.limiter.bound, Key: p.key, Weight: p.cost, Excuses: excuses})
	}
	return r
}

// terms says whether the limits of all parts, as they are now, have a leaky_queue, one
// with count_denied, or one that bans.
func (r *Request) terms() *terms {
	all := new(terms)
	for _, p := range r.parts {
		t := p.limiter.stand(p.limiter.terms.Load())
		all.queue, all.counts, all.bans = all.queue || t.queue, all.counts || t.counts, all.bans || t.bans
	}
	return all
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
	decide := func() (Decision, error) { return r.store.Decide(ctx, op, r.layers, 1) }
	if r.waits() {
		return beside(ctx, r.store, r.parts, func() (Decision, error) { return r.look(ctx) }, decide)
	}
	return decide()
}

// look peeks at the store, and ignores callers that wait.
func (r *Request) look(ctx context.Context) (Decision, error) {
	return r.store.Decide(ctx, meter.OpPeek, r.layers, 1)
}

// waits reports whether somebody waits for a part of the request.
func (r *Request) waits() bool {
	return slices.ContainsFunc(r.parts, func(p Part) bool { return !p.limiter.lines.None(at(p.key)) })
}

// Reserve takes what the request costs now. Within ttl, the reservation settles each
// part at its true cost. A denied request has the nil reservation, whose methods do
// nothing. So one request and an estimate of 4,000 tokens are one decision, settled at
// one request and the tokens that were used:
//
//	d, r, err := stint.All(requests.Key(u), tokens.Key(u).Cost(4000)).Reserve(ctx, time.Minute)
//	…
//	_, err = r.Settle(ctx, 1, used)
//
// Price: if several parts have a cost above 0, a peek at all of them and one
// reservation for each. If another request comes between and one part is denied, the
// reservations of the parts before it are canceled; meanwhile they may have denied
// other requests.
func (r *Request) Reserve(ctx context.Context, ttl time.Duration) (d Decision, reservation *Reservation, err error) {
	if r.err != nil || len(r.layers) == 0 {
		d, err = r.decide(ctx, meter.OpPeek)
		return d, nil, err
	}
	if !r.waits() {
		return r.reserve(ctx, ttl)
	}
	d, err = beside(ctx, r.store, r.parts, func() (Decision, error) { return r.look(ctx) }, func() (d Decision, err error) {
		d, reservation, err = r.reserve(ctx, ttl)
		return d, err
	})
	return d, reservation, err
}

// reserve is Reserve, and ignores callers that wait.
func (r *Request) reserve(ctx context.Context, ttl time.Duration) (Decision, *Reservation, error) {
	if len(r.parts) > 1 {
		if d, err := r.peekParts(ctx, ttl); err != nil || !d.Allowed {
			return d, nil, err
		}
	}
	reservation := &Reservation{store: r.store}
	joined := Decision{Allowed: true, Taken: 1, Tightest: -1}
	from := 0 // the first limit of the part, among those of the request
	for _, p := range r.parts {
		d, id, err := p.limiter.reserve(ctx, p.key, p.cost, ttl, excuses)
		if err != nil || !d.Allowed {
			_, failed := reservation.Cancel(context.WithoutCancel(ctx)) // if it fails, the parts stay charged
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

// peekParts says whether the whole request would pass. Limits with count_denied count a
// denial.
func (r *Request) peekParts(ctx context.Context, ttl time.Duration) (Decision, error) {
	d, err := r.look(ctx)
	if err != nil || d.Allowed || !r.terms().counts {
		return d, err
	}
	d, id, err := r.store.Reserve(ctx, r.layers, 1, ttl)
	if err == nil && d.Allowed {
		_, err = r.store.Settle(ctx, id, 0)
	}
	return d, err
}

// Wait waits until the request passes, and charges it then. Errors are those of
// [Limiter.Wait]. The request stands in the line of each of its keys, in the order of
// arrival with all others that wait in this process. While a key has no room for it, the
// waiters behind it on that key wait too. If the key has room, they go ahead, as long as
// the room will be there again when the request's other limits let it pass. If that time
// is not known, the first in line keeps its room free for a second, or for as long as it
// has waited.
func (r *Request) Wait(ctx context.Context) error {
	_, err := r.wait(ctx, 0)
	return err
}

// holdLonger is how much longer than its delay a place in a queue is reserved: enough
// for requests that come between, and for a late timer.
const holdLonger = 10 * time.Second

// WaitReserve is [Request.Wait] for costs that are known only later: it returns
// a reservation as [Request.Reserve] does.
func (r *Request) WaitReserve(ctx context.Context, ttl time.Duration) (*Reservation, error) {
	if ttl <= 0 || len(r.layers) == 0 {
		_, reservation, err := r.Reserve(ctx, ttl)
		return reservation, err
	}
	return r.wait(ctx, ttl)
}

// wait is WaitReserve, or Wait if ttl is 0.
func (r *Request) wait(ctx context.Context, ttl time.Duration) (*Reservation, error) {
	if err := ctx.Err(); err != nil || r.err != nil || len(r.layers) == 0 {
		if err == nil {
			_, err = r.decide(ctx, meter.OpPeek)
		}
		return nil, err
	}
	if slices.ContainsFunc(r.parts, func(p Part) bool { return p.cost > p.limiter.stand(p.limiter.terms.Load()).capacity }) {
		if d, err := r.look(ctx); err != nil {
			return nil, err
		} else if d.RetryAfter == Never {
			return nil, &WaitError{Decision: d, parts: true}
		}
	}
	if p := r.parts[0]; len(r.parts) == 1 && ttl == 0 {
		return nil, p.limiter.Wait(ctx, p.key, p.cost)
	}
	w, stands := &waiter{request: r, ttl: ttl}, make([]arrivals.Part, len(r.parts))
	for i, p := range r.parts {
		stands[i] = p.stand()
	}
	w.Join(w, arrivals.All, stands...)
	if _, err := w.Drive(ctx, false); err != nil {
		return nil, err
	}
	if err := sleep(ctx, time.Until(w.start)); err != nil {
		return nil, cancel(ctx, w.reserved, err)
	}
	if ttl == 0 {
		return nil, nil
	}
	return w.reserved, nil
}

// takeTurn takes the cost that w waits for.
func (r *Request) takeTurn(ctx context.Context, w *waiter) (d Decision, err error) {
	t := r.terms()
	if s, ok := r.store.(TurnStore); ok && w.ttl == 0 && !t.queue {
		d, _, err = s.TakeTurn(ctx, r.layers, 1, 0, w.Free())
		return d, err
	}
	before := time.Now()
	if t.careful() {
		if d, err = r.look(ctx); err != nil || !d.Allowed {
			return d, err
		}
	}
	switch {
	case w.ttl > 0:
		d, w.reserved, err = r.reserve(ctx, w.ttl)
	case !t.queue:
		d, err = r.store.Decide(ctx, meter.OpTake, r.layers, 1)
	default: // a reservation, so that a caller that gives up is not charged
		var id ReservationID
		d, id, err = r.store.Reserve(ctx, r.layers, 1, d.Delay+holdLonger)
		w.reserved = reservationOf(r.store, id)
	}
	if err == nil && d.Allowed && d.Delay > 0 {
		if late(ctx, before, d.Delay) {
			return d, cancel(ctx, w.reserved, &WaitError{Decision: d, parts: true})
		}
	}
	return d, err
}

// cancel gives back what a request has reserved, if anything. The request gives up
// because of why, which cancel returns.
func cancel(ctx context.Context, r *Reservation, why error) error {
	if r == nil {
		return why
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer stop()
	if _, err := r.Cancel(bounded); err != nil {
		return errors.Join(why, err) // the cost stays charged
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
