package policy

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint"
)

// An act is what is asked of the stores: an operation, and for a reservation
// its time to live.
type act struct {
	op  stint.Op
	ttl time.Duration // above 0: reserve
}

func (a act) charges() bool { return a.op != stint.OpPeek }

// Decide answers whether the request may pass now, and charges it: cost times
// what each rule says it costs. The answer is in r. The error is a
// [RequestError], [stint.ErrCost], or the store's where the rules do not say
// what to do then.
func (p *Policy) Decide(ctx context.Context, attrs Attributes, cost int64, r *Result) error {
	if err := p.match(attrs, cost, r); err != nil {
		return err
	}
	return p.decide(ctx, act{op: stint.OpTake}, r)
}

// Peek is Decide without the charge.
func (p *Policy) Peek(ctx context.Context, attrs Attributes, cost int64, r *Result) error {
	if err := p.match(attrs, cost, r); err != nil {
		return err
	}
	return p.decide(ctx, act{op: stint.OpPeek}, r)
}

// decide decides for the rules that matched: first for those that are not in
// shadow, in one step, then for each of the others by itself.
func (p *Policy) decide(ctx context.Context, a act, r *Result) error {
	r.Decision.Allowed = true
	if r.blocked >= 0 {
		r.Decision = stint.Decision{RetryAfter: stint.Never}
		r.Tightest = r.blocked
	} else if err := p.run(ctx, &p.main, a, r); err != nil {
		if err = p.failed(ctx, a, r, err); err != nil {
			return err
		}
	} else if a.charges() && r.Decision.Allowed && p.local.store != nil {
		p.warm(ctx, r)
	}
	for i := range r.hits {
		if h := &r.hits[i]; h.limited() && h.rule.shadow {
			p.shadow(ctx, a, r, h)
		}
	}
	return nil
}

// run decides for all enforced hits on one side.
func (p *Policy) run(ctx context.Context, s *side, a act, r *Result) error {
	first, layers, alike := -1, 0, true
	for i := range r.hits {
		h := &r.hits[i]
		if !h.enforced() {
			continue
		}
		if first < 0 {
			first = i
		}
		layers += len(h.plan.layers)
		alike = alike && h.weight == r.hits[first].weight
	}
	if first < 0 {
		return nil
	}
	d, err := stint.Decision{}, error(nil)
	h := &r.hits[first]
	switch {
	case !alike || layers > stint.MaxLayers:
		return p.steps(ctx, s, a, r)
	case a.ttl == 0 && layers == len(h.plan.layers):
		d, err = s.plans[h.plan.id].all.Decide(ctx, a.op, h.key, h.cost)
	default:
		r.layers = r.layers[:0]
		for i := range r.hits {
			if r.hits[i].enforced() {
				r.layers = append(r.layers, s.layer(&r.hits[i]))
			}
		}
		d, err = p.charge(ctx, s, a, r, r.layers, h)
	}
	if err != nil {
		return err
	}
	r.answer(d, layers)
	r.charged(s == &p.local, a, d)
	return nil
}

func (s *side) layer(h *hit) stint.Layer {
	return stint.Layer{Bound: s.plans[h.plan.id].all, Key: h.key}
}

// charge takes or reserves what h costs from layers.
func (p *Policy) charge(ctx context.Context, s *side, a act, r *Result, layers []stint.Layer, h *hit) (stint.Decision, error) {
	if a.ttl == 0 {
		return s.store.Decide(ctx, a.op, layers, h.cost)
	}
	d, token, err := s.store.Reserve(ctx, layers, h.cost, a.ttl)
	if err == nil && d.Allowed {
		r.parts = append(r.parts, tokenPart{token: token, weight: h.weight, local: s == &p.local, shadow: h.rule.shadow})
	}
	return d, err
}

// answer writes the decision over layers into the result.
func (r *Result) answer(d stint.Decision, layers int) {
	r.Decision = d
	layer := 0
	for i := range r.hits {
		h := &r.hits[i]
		if !h.enforced() {
			continue
		}
		for k := range h.plan.layers {
			e := &r.Rules[h.first+k]
			e.set(d, layer < stint.MaxLayers && d.Denied.Has(layer), layers == 1)
			layer++
		}
		if layers == 1 {
			r.Tightest = h.first
			return
		}
	}
	r.seekTightest()
}

// set writes what a decision says of one of its layers.
func (e *RuleResult) set(d stint.Decision, denied, alone bool) {
	e.Denied, e.ResetAfter, e.RetryAfter = denied, d.ResetAfter, 0
	if denied {
		e.RetryAfter = d.RetryAfter
	}
	if e.Remaining = -1; alone {
		e.Remaining = d.Remaining
	}
}

// seekTightest finds the layer that the decision is about: when denied the
// first that denied, else the first whose limit the decision has.
func (r *Result) seekTightest() {
	r.Tightest = -1
	for i := range r.Rules {
		e := &r.Rules[i]
		if e.Shadow || e.Action != "" || r.hits[e.hit].out {
			continue
		}
		about := r.Decision.Allowed && e.Limit.Capacity() == r.Decision.Limit || !r.Decision.Allowed && e.Denied
		if about {
			r.Tightest = i
			if e.Limit.Capacity() == r.Decision.Limit {
				e.Remaining = r.Decision.Remaining
			}
			return
		}
	}
}

// charged notes what was charged and where, so that it can be given back. What
// was reserved is given back by its token alone.
func (r *Result) charged(local bool, a act, d stint.Decision) {
	for i := range r.hits {
		if h := &r.hits[i]; h.enforced() {
			h.took, h.onLocal = a.charges() && a.ttl == 0 && d.Allowed, local
		}
	}
}

// shadow decides for a rule in shadow, by itself. What the others have denied
// will not happen, and so is not charged here either.
func (p *Policy) shadow(ctx context.Context, a act, r *Result, h *hit) {
	if !r.Decision.Allowed {
		a = act{op: stint.OpPeek}
	}
	var d stint.Decision
	var err error
	if a.ttl == 0 {
		d, err = p.main.plans[h.plan.id].all.Decide(ctx, a.op, h.key, h.cost)
	} else {
		d, err = p.charge(ctx, &p.main, a, r, []stint.Layer{p.main.layer(h)}, h)
	}
	for k := range h.plan.layers {
		e := &r.Rules[h.first+k]
		if err != nil {
			e.Failed = FailOpen
			continue
		}
		e.set(d, d.Denied.Has(k), len(h.plan.layers) == 1)
		r.ShadowDenied = r.ShadowDenied || e.Denied
	}
	if err != nil && r.StoreError == nil {
		r.StoreError = err
	}
	h.took = err == nil && a.charges() && a.ttl == 0 && d.Allowed
}

// warm charges the local store with what the main one has let through.
func (p *Policy) warm(ctx context.Context, r *Result) {
	for i := range r.hits {
		if h := &r.hits[i]; h.enforced() && h.rule.failure == FailLocal && h.cost > 0 {
			// An error leaves it colder, which is no reason to deny.
			_, _ = p.local.plans[h.plan.id].all.Decide(ctx, stint.OpTakeUpTo, h.key, h.cost)
		}
	}
}

// failed decides by the words of the rules, because the store could not.
func (p *Policy) failed(ctx context.Context, a act, r *Result, err error) error {
	for _, ours := range []error{stint.ErrCost, stint.ErrLayers, stint.ErrReservation} {
		if errors.Is(err, ours) {
			return err
		}
	}
	r.StoreError = err
	closed, local := -1, false
	for i := range r.hits {
		h := &r.hits[i]
		if !h.enforced() {
			continue
		}
		for k := range h.plan.layers {
			r.Rules[h.first+k].Failed = h.rule.failure
		}
		switch h.rule.failure {
		case FailClosed:
			h.out = true
			for k := range h.plan.layers {
				e := &r.Rules[h.first+k]
				e.Denied, e.Remaining, e.RetryAfter = true, 0, closedFor
			}
			if closed < 0 {
				closed = h.first
			}
		case FailOpen:
			h.out = true
		default:
			local = true
		}
	}
	switch {
	case closed >= 0:
		r.Decision = stint.Decision{Limit: r.Rules[closed].Limit.Capacity(), RetryAfter: closedFor}
		r.Tightest = closed
		return nil
	case local && p.local.store == nil:
		return err
	case local:
		return p.run(ctx, &p.local, a, r)
	}
	r.Decision = stint.Decision{Allowed: true}
	return nil
}

// closedFor is when to come back to a rule that is closed because its store
// failed: long enough to spare it, short enough to notice that it is back.
const closedFor = stint.Wait(time.Second)
