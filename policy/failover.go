package policy

import (
	"context"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
)

// While the store fails, the local one decides. What it lets through is owed, and is charged
// to the store, limit by limit, once that answers again; see package fallback.

// failed decides by each rule's on_store_failure, because the store could not. It returns err
// if the caller has gone: that is no failure of the store, and nobody waits for a decision.
func (p *Policy) failed(ctx context.Context, a *operation, r *Result, err error) error {
	if ctx.Err() != nil || !p.failover.Fails(err) {
		return err
	}
	r.StoreError = err
	closed, tightest, limits, local := -1, -1, 0, false
	for i := range r.matches {
		h := &r.matches[i]
		if !h.enforced() {
			continue
		}
		for k := range h.plan.ruleLimits {
			r.Rules[h.first+k].fail(h.rule.failure)
		}
		switch h.rule.failure {
		case FailClosed:
			h.fixed = true
			if closed < 0 {
				closed, tightest = h.first, limits
			}
		case FailOpen:
			h.fixed = true
		default:
			local = true
		}
		limits += len(h.plan.ruleLimits)
	}
	switch {
	case closed >= 0:
		r.Decision = stint.Decision{Limit: r.Rules[closed].Capacity, RetryAfter: fallback.ClosedFor, Tightest: tightest}
		r.Tightest = closed
		return nil
	case local && p.local == nil:
		return err
	case local:
		in := *a
		in.local, in.why = true, err
		if err = p.run(ctx, &in, r); err == nil && a.charges() && (r.Decision.Allowed || !a.turn) {
			p.owe(&in, r)
		}
		return err
	}
	r.Decision = stint.Decision{Allowed: true, Tightest: -1}
	return nil
}

// fail notes how the entry's rule decides without its store, unless the local one does.
func (e *RuleResult) fail(how Failure) {
	e.Failed, e.Denied, e.RetryAfter = how, how == FailClosed, 0
	if e.use(0, 0, 0); e.Denied {
		e.RetryAfter = fallback.ClosedFor
	}
}

// local reports whether a charge of the match counts in the local store too.
func (h *ruleMatch) local() bool {
	return h.takes() && h.rule.failure == FailLocal
}

// warm charges the local store with what the main one has let through, and not reserved.
func (p *Policy) warm(a *operation, r *Result) {
	for i := range r.matches {
		if h := &r.matches[i]; h.local() && !h.reserves(a) {
			p.pairOf(h.plan).Warm(h.key, h.cost)
		}
	}
}

// owe notes what the local store has charged in place of the store. What it has reserved is owed
// once it is settled.
func (p *Policy) owe(a *operation, r *Result) {
	if fallback.Excusable(&r.Decision) {
		return
	}
	for i := range r.matches {
		if h := &r.matches[i]; h.local() && !(r.Decision.Allowed && h.reserves(a)) {
			p.pairOf(h.plan).Owe(a.why, h.key, h.cost, r.Decision.Allowed)
		}
	}
}

// reserves reports whether the operation reserves what the match takes.
func (h *ruleMatch) reserves(a *operation) bool { return a.ttl > 0 || h.byResponse(a) }

// remember tells the failover of a reservation of the main store, or of one whose answer was lost,
// or, with the error for which it decides, of one of the local store. of returns what it reserves.
func (p *Policy) remember(a *operation, id stint.ReservationID, err error, cost int64, ttl time.Duration, of func() []fallback.Reserved) {
	switch {
	case err != nil:
		p.failover.Lost(err, of)
	case id == "":
	case a.local:
		p.failover.ReserveLocal(a.why, id, cost, ttl, of())
	default:
		p.failover.Reserve(id, cost, ttl, of())
	}
}

// reservedBy returns what one rule reserves.
func (p *Policy) reservedBy(h *ruleMatch, weight int64, excuses time.Duration) []fallback.Reserved {
	if !h.takes() || weight == 0 || !h.local() && !notesDenied(h) {
		return nil
	}
	return []fallback.Reserved{{Pair: p.pairOf(h.plan), Key: h.key, Weight: weight, Excuses: excuses, Apart: !h.local()}}
}

// unsettled returns an error if the store has yet to learn what requests of a matched key have
// cost: see [fallback.Pair.Unsettled].
func (p *Policy) unsettled(r *Result) error {
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() {
			if err := p.pairOf(h.plan).Unsettled(h.key); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserved returns what the enforced rules without a reservation of their own reserve, for
// settlements while the store fails.
func (p *Policy) reserved(a *operation, r *Result, shadow bool) (of []fallback.Reserved) {
	for i := range r.matches {
		if h := &r.matches[i]; !shadow && !h.apart(a) {
			of = append(of, p.reservedBy(h, h.unit, a.excuses)...)
		}
	}
	return of
}

// Debts is about requests that passed while the store failed. It returns how many keys, each
// under one limit, still owe the store their charge, how many units have been charged to it
// since, and how many were not remembered.
func (p *Policy) Debts() (owing int, posted, forgiven uint64) {
	s := p.failover.Stats()
	return s.Owing, s.Posted, s.Forgiven
}

// Close forgets what is owed to the store, for this policy and all of its chain of
// [Policy.Reload], and waits for the goroutine that posts it. The stores stay open, and the
// policies can still be used. Close may be called again.
func (p *Policy) Close() { p.failover.Close() }
