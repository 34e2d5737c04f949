package policy

import (
	"context"
	"errors"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/meter"
)

// While the store fails, what the local one lets through is owed, and charged
// to the store limit by limit once it answers again; see package fallback.

// single binds limits one by one, in the mode of their rule; together is what
// they are bound as.
func (s *side) single(mode string, p state, together stint.Bound) ([]stint.Bound, error) {
	if len(p.limits) == 1 {
		return []stint.Bound{together}, nil
	}
	each := make([]stint.Bound, len(p.limits))
	for k, l := range p.limits {
		var err error
		each[k], err = fallback.Apart(together, k, func(string, ...stint.Limit) (stint.Bound, error) {
			return s.hold(mode, p.name, l)
		})
		if err != nil {
			return nil, err
		}
	}
	return each, nil
}

// each returns what a hit's limits are by themselves, on one side.
func (p *Policy) each(s *side, h *hit) []stint.Bound {
	switch g := h.plan.given; {
	case g == nil:
		return s.each[h.plan.id]
	case s == &p.local:
		return g.localEach
	default:
		return g.mainEach
	}
}

// local reports whether what a hit takes is for the local store too.
func (h *hit) local() bool {
	return h.enforced() && h.rule.failure == FailLocal && h.cost > 0 && h.part == partTake
}

// warm charges the local store with what the main one has let through: each
// limit as far as its share goes.
func (p *Policy) warm(ctx context.Context, r *Result) {
	for i := range r.hits {
		if h := &r.hits[i]; h.local() {
			for _, one := range p.each(&p.local, h) {
				// An error leaves it colder, which is no reason to deny.
				_, _ = one.Decide(ctx, meter.OpTakeUpTo, h.key, h.cost)
			}
		}
	}
}

// owe notes what the local store has let through because the store failed, and
// why: what may have been charged there is not owed as well.
func (p *Policy) owe(r *Result, why error) {
	if p.debts == nil || errors.Is(why, stint.ErrAmbiguous) {
		return
	}
	for i := range r.hits {
		if h := &r.hits[i]; h.local() {
			local := p.each(&p.local, h)
			for k, one := range p.each(&p.main, h) {
				p.debts.Add(one, local[k], h.key, h.cost)
			}
		}
	}
}

// forgive forgets what a hit's key owes.
func (p *Policy) forgive(h *hit) {
	if p.debts == nil {
		return
	}
	for _, one := range p.each(&p.main, h) {
		p.debts.Forget(one, h.key)
	}
}

// Debts returns how many keys, each under one limit, owe the store something
// because they passed while it failed, how many units have been charged to it
// afterwards, and how many were not remembered.
func (p *Policy) Debts() (owing int, posted, forgiven uint64) {
	if p.debts == nil {
		return 0, 0, 0
	}
	return p.debts.Stats()
}

// Close forgets what is owed to the store, for this policy and for all that
// were made of it by [Policy.Reload], and waits for the goroutine that posts it.
// The stores stay open, and the policies good. It may be called again.
func (p *Policy) Close() {
	if p.debts != nil {
		p.debts.Close()
	}
}
