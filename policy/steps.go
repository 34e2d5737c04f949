package policy

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint"
)

// stepTTL is how long a step's reservation may last: long enough for the steps
// that follow, short enough that a store does not fill up with those that
// stand. One that ends too early stands too, which denies others, and admits
// nobody.
const stepTTL = 100 * time.Millisecond

// A step is what can be decided at once: layers of one cost.
type step struct {
	hits   []int
	layers []stint.Layer
	token  stint.Token // once reserved
}

// steps decides what a store cannot decide at once. All are asked first, so
// that a denial charges nothing; then each is reserved, and given back if a
// later one has been used up by others meanwhile.
func (p *Policy) steps(ctx context.Context, s *side, a act, r *Result) error {
	all := s.split(r)
	answers := make([]stint.Decision, len(all))
	for i := range all {
		var err error
		if answers[i], err = s.store.Decide(ctx, stint.OpPeek, all[i].layers, r.hits[all[i].hits[0]].cost); err != nil {
			return err
		}
	}
	d := r.join(all, answers)
	if d.Allowed && a.charges() {
		var err error
		if d, err = p.takeSteps(ctx, s, a, r, all, answers); err != nil {
			return err
		}
	} else if a.charges() {
		p.countDenied(ctx, s, r)
	}
	r.Decision = d
	r.seekTightest()
	r.charged(s == &p.local, a, d)
	return nil
}

// split sorts the enforced hits by what they cost, as few steps as will do.
func (s *side) split(r *Result) []step {
	var all []step
	for i := range r.hits {
		h := &r.hits[i]
		if !h.enforced() {
			continue
		}
		at := -1
		for k := range all {
			if r.hits[all[k].hits[0]].weight == h.weight && all[k].count(r)+len(h.plan.layers) <= stint.MaxLayers {
				at = k
				break
			}
		}
		if at < 0 {
			at = len(all)
			all = append(all, step{})
		}
		all[at].hits = append(all[at].hits, i)
		all[at].layers = append(all[at].layers, s.layer(h))
	}
	return all
}

// count returns how many layers a step has.
func (st *step) count(r *Result) (n int) {
	for _, i := range st.hits {
		n += len(r.hits[i].plan.layers)
	}
	return n
}

// takeSteps charges step by step. The last need not be reserved: nothing can
// fail behind it.
func (p *Policy) takeSteps(ctx context.Context, s *side, a act, r *Result, all []step, answers []stint.Decision) (stint.Decision, error) {
	for i := range all {
		last := i == len(all)-1 && a.ttl == 0
		var err error
		if answers[i], err = p.takeStep(ctx, s, a, r, &all[i], last); err != nil || !answers[i].Allowed {
			// A client that has gone must not leave a charge behind.
			undo(context.WithoutCancel(ctx), s, r, all[:i])
			return r.join(all, answers), err
		}
	}
	if a.ttl > 0 {
		for i := range all {
			r.parts = append(r.parts, tokenPart{
				token: all[i].token, weight: r.hits[all[i].hits[0]].weight, local: s == &p.local,
			})
		}
	}
	return r.join(all, answers), nil
}

// takeStep charges one step so that it can be undone: by its token or, when a
// store has no room for one more and the token is not for the caller, by a
// refund, which may give back what time has forgiven meanwhile.
func (p *Policy) takeStep(ctx context.Context, s *side, a act, r *Result, st *step, last bool) (d stint.Decision, err error) {
	cost := r.hits[st.hits[0]].cost
	if !last {
		ttl := a.ttl
		if ttl == 0 {
			ttl = stepTTL
		}
		d, st.token, err = s.store.Reserve(ctx, st.layers, cost, ttl)
		if a.ttl > 0 || !errors.Is(err, stint.ErrFull) {
			return d, err
		}
	}
	return s.store.Decide(ctx, stint.OpTake, st.layers, cost)
}

// undo gives back what steps have charged.
func undo(ctx context.Context, s *side, r *Result, charged []step) {
	for i := range charged {
		// What fails here stands as charged, and admits nobody.
		if st := &charged[i]; st.token != "" {
			_, _ = s.store.Settle(ctx, st.token, 0)
		} else {
			_, _ = s.store.Refund(ctx, st.layers, r.hits[st.hits[0]].cost)
		}
	}
}

// join writes the answers of the steps into the entries and returns the answer
// to the whole.
func (r *Result) join(all []step, answers []stint.Decision) stint.Decision {
	var d stint.Decision
	for i, one := range answers {
		layer, alone := 0, all[i].count(r) == 1
		for _, k := range all[i].hits {
			h := &r.hits[k]
			for e := range h.plan.layers {
				r.Rules[h.first+e].set(one, one.Denied.Has(layer), alone)
				layer++
			}
		}
		if i == 0 {
			d = one
			continue
		}
		d.Join(&one)
		d.Allowed = d.Allowed && one.Allowed
		d.Taken = max(d.Taken, one.Taken)
	}
	d.Denied = 0
	layer := 0
	for i := range r.Rules {
		if e := &r.Rules[i]; !e.Shadow && e.Action == "" && !r.hits[e.hit].out {
			if e.Denied && layer < stint.MaxLayers {
				d.Denied |= 1 << uint(layer)
			}
			layer++
		}
	}
	if !d.Allowed {
		d.Taken = 0
	}
	return d
}

// countDenied counts a request that was denied in the limits that say so, as a
// store does when it decides at once.
func (p *Policy) countDenied(ctx context.Context, s *side, r *Result) {
	for i := range r.hits {
		h := &r.hits[i]
		if !h.enforced() {
			continue
		}
		for k, l := range h.plan.limits {
			if l.CountDenied() {
				// The denial stands, whether it could be counted or not.
				_, _ = s.plans[h.plan.id].one(k).Decide(ctx, stint.OpTake, h.key, h.cost)
			}
		}
	}
}
