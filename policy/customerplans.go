package policy

import (
	"fmt"
	"sync/atomic"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/overridetable"
)

// customerPlans say which plan of the tiers the requests have whose attribute has
// a value: a number for each (attribute, value), which names a plan. The mutex of
// customers guards writing to it.
type customerPlans struct {
	table  *overridetable.Table
	names  atomic.Pointer[[]string] // by number − 1; entries are never replaced
	byName map[string]uint32
}

func newCustomerPlans() *customerPlans {
	s := &customerPlans{table: overridetable.New(), byName: make(map[string]uint32)}
	s.names.Store(new([]string))
	return s
}

// of returns the name of the plan that a value has; it is the value itself where
// nothing else is said.
func (s *customerPlans) of(attribute, value string) string {
	names := *s.names.Load()
	if len(names) == 0 {
		return value
	}
	n := s.table.Get(attribute, value)
	if n == overridetable.None || int(n) > len(names) {
		return value
	}
	return names[n-1]
}

// set gives a value a plan; "" takes it away.
func (s *customerPlans) set(attribute, value, plan string) error {
	if plan == "" {
		s.table.Set(attribute, value, overridetable.None)
		return nil
	}
	n := s.byName[plan]
	if n == 0 {
		names := *s.names.Load()
		if len(names) == MaxPlans {
			return fmt.Errorf("policy: more than %d different plans", MaxPlans)
		}
		longer := append(names, plan) // readers see the part before, which does not change
		n = uint32(len(longer))
		s.names.Store(&longer)
		s.byName[plan] = n
	}
	s.table.Set(attribute, value, n)
	return nil
}

// SetPlan says that requests whose attribute has a value have a plan, in every
// rule with tiers by this attribute, from the next request on; "" takes it away.
// Without one, the value itself names the plan. A plan that the tiers do not have
// is as any other value which names none.
func (p *Policy) SetPlan(attribute, value, plan string) error {
	c := p.customers
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set.Load().values.set(attribute, value, plan)
}

// SetPlan is [Policy.SetPlan] for the set.
func (r *Replacement) SetPlan(attribute, value, plan string) error {
	r.customers.mu.Lock()
	defer r.customers.mu.Unlock()
	return r.set.values.set(attribute, value, plan)
}

// plan returns what a tier's requests are held to, or nil for the rule's own.
func (t *tiers) plan(q *match.Request, c *customers) *plan {
	v, _ := q.Value(t.by)
	if c != nil {
		v = c.set.Load().values.of(t.by.Name, v)
	}
	if p := t.plans[v]; p != nil {
		return p
	}
	return t.def
}

// Plans returns the names of the plans that tiers by an attribute have, of all
// rules, in the order of the rules; none if no rule has tiers by it.
func (r *Rules) Plans(attribute string) (names []string) {
	seen := make(map[string]bool)
	for _, one := range r.rules {
		if one.tiers == nil || one.tiers.by.Name != attribute {
			continue
		}
		for _, name := range one.tiers.names {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// TierAttributes returns the attributes by which rules have tiers.
func (r *Rules) TierAttributes() (names []string) {
	seen := make(map[string]bool)
	for _, one := range r.rules {
		if one.tiers != nil && !seen[one.tiers.by.Name] {
			seen[one.tiers.by.Name] = true
			names = append(names, one.tiers.by.Name)
		}
	}
	return names
}

// Explain says for every rule whether it holds for a request, and why, with
// customers' own limits and plans. The error is a [RequestError]. Nothing is
// asked of the store.
func (p *Policy) Explain(attrs Attributes) (Explanation, error) {
	return p.rules.explain(attrs, p)
}

// ownPlan returns what a customer has in place of the rule's limits, or nil.
func (p *Policy) ownPlan(one *rule, q *match.Request) *plan {
	if !p.customers.any() || !one.limited() {
		return nil
	}
	key, _, missing := p.key(one, q, nil)
	if missing {
		return nil
	}
	return p.customers.find(one.name, key)
}
