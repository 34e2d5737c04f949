package policy

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/waitqueue"
	"github.com/stint-dev/stint/meter"
)

const (
	// heldLonger is how much longer a place in a queue is reserved than the queue may hold a
	// request: enough for a timer that is late.
	heldLonger = time.Second
	// giveBackWithin is how long giving back may take, since no request waits for it.
	giveBackWithin = 5 * time.Second
)

// Wait is Decide that waits until the request may start, and returns how long that took. If
// rules deny the request for now, it waits for room as long as their field wait says; most
// replaces that time where a rule says nothing or more, and a most of 0 replaces nothing. The
// request waits in one line with all others for its keys, through whichever method or
// protocol they came, in this policy and those made from it by [Policy.Reload], until all its
// limits let it pass at one moment. A request that would have to wait longer than it may, or
// past the context's deadline, is denied at once, like one that does not wait. If the context
// is canceled meanwhile, Wait returns its error.
//
// Under a leaky_queue, Wait holds a request that passed until its start; a full queue denies. If the request gives
// up before, it is charged nothing, and the requests behind it move up. In any stretch d, at
// most 1 + d/T requests of one queue start. A caller of Decide keeps the delay that it was
// told: no other request takes its place.
//
// Price: that of Decide. If rules let the request wait, a denial costs two decisions. Under a
// leaky_queue the price is that of Reserve, with a place in the store for as long as the
// queue holds the request; when the store has no room for reservations, the place of a
// request that gives up stays charged.
func (p *Policy) Wait(ctx context.Context, attrs Attributes, cost int64, most time.Duration, r *Result) (time.Duration, error) {
	_, waited, err := p.wait(ctx, attrs, cost, 0, most, r)
	return waited, err
}

// WaitReserve is Wait with a reservation, if the request is allowed: [Policy.Settle] replaces
// the charge by the true cost within ttl of the start.
func (p *Policy) WaitReserve(ctx context.Context, attrs Attributes, cost int64, ttl, most time.Duration, r *Result) (stint.ReservationID, time.Duration, error) {
	if ttl <= 0 {
		return "", 0, errTTL
	}
	return p.wait(ctx, attrs, cost, ttl, most, r)
}

// wait is WaitReserve, or Wait where ttl is 0.
func (p *Policy) wait(ctx context.Context, attrs Attributes, cost int64, ttl, most time.Duration, r *Result) (id stint.ReservationID, waited time.Duration, err error) {
	if err := p.match(attrs, cost, r); err != nil {
		return "", 0, err
	}
	waited, err = p.waitMatched(ctx, attrs, cost, most, &operation{op: meter.OpTake, ttl: ttl, lease: ttl, excuses: ttl}, r)
	if err == nil && r.Decision.Allowed && ttl > 0 {
		id = p.sealAll(r)
	}
	return id, waited, err
}

// waitMatched is wait for a request that has been matched. A negative most does not wait.
func (p *Policy) waitMatched(ctx context.Context, attrs Attributes, cost int64, most time.Duration, a *operation, r *Result) (waited time.Duration, err error) {
	settles, ttl, inLine := a.ttl > 0 || a.response > 0, a.ttl, most >= 0 && r.mayWait(most)
	if held := r.held; held > 0 && most >= 0 {
		if most > 0 {
			held = min(held, most)
		}
		if !settles && !inLine { // nobody settles it: it is to end soon after its turn
			delay, err := p.delay(ctx, attrs, cost, r)
			if err != nil {
				return 0, err
			}
			held = min(held, 2*delay)
		}
		a.ttl = ttl + min(held, math.MaxInt64-heldLonger-ttl) + heldLonger
		if a.lease > 0 {
			a.lease = a.ttl
		}
	}
	if inLine {
		waited, err = p.waitInLine(ctx, attrs, cost, most, a, r)
	} else {
		err = p.decide(ctx, a, r)
	}
	if err != nil && !settles && errors.Is(err, stint.ErrFull) {
		if err = p.match(attrs, cost, r); err == nil {
			err = p.decide(ctx, &operation{op: meter.OpTake}, r)
		}
	}
	if err != nil {
		return 0, err
	}
	p.report(attrs, cost, r)
	if r.Decision.Allowed && r.Decision.Delay > 0 && most >= 0 {
		held, err := p.untilTurn(ctx, most, settles, r)
		if waited += held; err != nil || !r.Decision.Allowed {
			r.giveBack()
		}
		return waited, err
	}
	return waited, err
}

// delay returns how long queues would hold a matched request now.
func (p *Policy) delay(ctx context.Context, attrs Attributes, cost int64, r *Result) (time.Duration, error) {
	if err := p.decide(ctx, &operation{op: meter.OpPeek}, r); err != nil {
		return 0, err
	}
	return r.Decision.Delay, p.match(attrs, cost, r)
}

// untilTurn holds a request until its turn in a leaky_queue. If the wait is too long, the
// decision in r becomes a denial.
func (p *Policy) untilTurn(ctx context.Context, most time.Duration, settles bool, r *Result) (time.Duration, error) {
	began, d := time.Now(), &r.Decision
	place := waitqueue.Place[reservedPart]{Start: began.Add(d.Delay)}
	if deadline, bounded := ctx.Deadline(); bounded && (most <= 0 || deadline.Sub(began) < most) {
		most = max(deadline.Sub(began), 1)
	}
	key := r.line(&place, settles)
	if most > 0 && p.queued.Spare(key, place).Sub(began) > most {
		p.drop(ctx, r.parts, false) // if a later request has a delay, the place passes unused
		r.tooLong(most)
		return 0, nil
	}
	returns, err := p.queued.Wait(ctx, key, place)
	if err != nil {
		p.drop(ctx, r.parts, !returns)
	}
	return time.Since(began), err
}

// tooLong turns an answer into a denial because its delay is longer than most: a denial by
// each queue whose own delay is.
func (r *Result) tooLong(most time.Duration) {
	d, longest, queues := &r.Decision, r.Decision.Delay, 0
	r.queues(func(*ruleMatch, *RuleLimit) { queues++ })
	d.Allowed, d.Taken, d.Delay, d.RetryAfter = false, 0, 0, stint.Wait(longest-most)
	limit := -1
	for i := range r.matches {
		h := &r.matches[i]
		if h.rule.Shadow || h.plan.id < 0 {
			continue
		}
		for k, l := range h.plan.ruleLimits {
			limit++
			if h.fixed || h.weight == 0 || !l.Limit.Algorithm().Queues() {
				continue
			}
			delay, e := longest, &r.Rules[h.first+k]
			if queues > 1 { // with one queue, there may be no answers by limit
				delay = r.answers[h.first+k].Delay
			}
			if delay <= most {
				continue
			}
			e.Denied, e.RetryAfter = true, stint.Wait(delay-most)
			if limit < stint.MaxLimits {
				d.Denied |= 1 << uint(limit)
			}
			if at := r.Tightest; delay == longest && (at < 0 || r.Rules[at].RetryAfter != e.RetryAfter) {
				r.Tightest, d.Tightest, d.Limit, d.Remaining = h.first+k, limit, e.Capacity, e.Remaining
			}
		}
	}
}

// drop gives back what a request reserved; with byLine only the charges of rules in shadow,
// since the line gives back the rest. A charge that cannot be given back stays, which is
// strict.
func (p *Policy) drop(ctx context.Context, parts []reservedPart, byLine bool) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer stop()
	for _, part := range parts {
		if part.shadow || !byLine {
			_, _ = p.settle(ctx, part, 0)
		}
	}
}

// newLines returns the lines of requests under leaky_queues, for a policy and those made from
// it by Reload.
func (p *Policy) newLines() *waitqueue.Lines[reservedPart] {
	return &waitqueue.Lines[reservedPart]{GiveBack: func(part reservedPart, cost int64) {
		ctx, stop := context.WithTimeout(context.Background(), giveBackWithin)
		defer stop()
		_, _ = p.settle(ctx, part, cost) // what fails stays charged, which is strict
	}}
}

// queues yields the leaky_queues that charge the request, and reports whether no other limit
// charges it.
func (r *Result) queues(yield func(*ruleMatch, *RuleLimit)) (alone bool) {
	alone = true
	for i := range r.matches {
		h := &r.matches[i]
		if !h.enforced() || h.weight == 0 {
			continue
		}
		for _, l := range h.plan.ruleLimits {
			if l.Limit.Algorithm().Queues() {
				yield(h, l)
			} else {
				alone = false
			}
		}
	}
	return alone
}

// heldBy returns the longest that a leaky_queue among limits holds a request; 0
// without one.
func heldBy(limits []stint.Limit) (longest time.Duration) {
	for _, l := range limits {
		if l.Algorithm().Queues() {
			longest = max(longest, waitqueue.Pace{Period: l.Period(), Count: l.Count()}.Span(l.Burst()))
		}
	}
	return longest
}

// line returns the key of the line that the request waits in, one for all its queues and
// their keys together. It writes into place what was charged, at which pace, and who gives it
// back.
func (r *Result) line(place *waitqueue.Place[reservedPart], settles bool) (key string) {
	var id, weights []byte
	var only stint.Limit
	n := 0
	alone := r.queues(func(h *ruleMatch, l *RuleLimit) {
		if n++; n == 1 {
			place.Units, place.Grain, only = h.cost, h.unit, l.Limit
		}
		weights = append(strconv.AppendInt(weights, h.weight, 10), ',')
		for _, text := range [...]string{h.plan.name, l.Limit.ID(), h.key} {
			id = append(strconv.AppendInt(id, int64(len(text)), 10), ':')
			id = append(id, text...)
		}
	})
	if n > 1 { // requests may swap places only if they weigh the same in each queue
		id = append(id, weights...)
	} else {
		place.Pace = waitqueue.Pace{Period: only.Period(), Count: only.Count()}
	}
	for _, part := range r.parts {
		if part.shadow {
			continue
		}
		if place.Reservation, place.Return = part, waitqueue.ByWaiter; alone && !settles && len(r.parts) == 1 {
			place.Return = waitqueue.ByLine
		}
		if part.local {
			id = append(id, 'L') // the local store has lines of its own
		}
	}
	return string(id)
}
