package policy

import (
	"errors"

	"github.com/stint-dev/stint"
)

// Rehearse returns a policy of any rules on another store, such as one with a virtual clock,
// to see what the rules would do. It takes over the secret and the overrides that customers
// of p have now, and nothing else: its decisions change nothing in p, and it does not call
// OnDecision. The errors are those of [New].
func (p *Policy) Rehearse(store stint.Store, rules *Rules) (*Policy, error) {
	if rules == nil {
		return nil, errors.New("policy: Rehearse without rules: Parse reads them")
	}
	return on(store, Options{Secret: p.opts.Secret}, p.customers.copied()).with(rules)
}

// copied returns a copy of the overrides and plans, bound to no rules yet.
func (c *customers) copied() *customers {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := new(customers)
	next.own.Store(c.own.Load().copied())
	next.set.Store(c.set.Load().copied())
	next.some.Store(c.some.Load())
	return next
}

// copied shares the table of numbers with s. Numbers that s adds to it later are above those
// of the copy, which ignores them.
func (s *overrideSet) copied() *overrideSet {
	plans := make([]*customerPlan, len(s.plans.all()))
	for i, one := range s.plans.all() {
		plans[i] = &customerPlan{rule: one.rule, override: one.override}
	}
	next := &overrideSet{newShared[*customerPlan](s.plans.table), s.tiers}
	next.plans.values.Store(&plans)
	return next
}
