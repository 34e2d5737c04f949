package policy

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/overridetable"
)

// MaxPlans is how many different limits the overrides of a policy may have:
// customers share them.
const MaxPlans = 100_000

// An Override is one customer's own limits under a rule, in place of what the
// rule, its tiers and the overrides of its file say. Exactly one of Limits,
// Unlimited and Block is set; the zero Override is none.
type Override struct {
	Limits           []stint.Limit
	Unlimited, Block bool
}

// none reports whether the override is the zero one.
func (o *Override) none() bool { return len(o.Limits) == 0 && !o.Unlimited && !o.Block }

// text identifies what an override does.
func (o *Override) text() string {
	switch {
	case o.Unlimited:
		return "unlimited"
	case o.Block:
		return "block"
	}
	return textOf(o.Limits)
}

// customers are overrides by the million. A policy and all that come of it by
// [Policy.Reload] have the same.
type customers struct {
	set          atomic.Pointer[overrideSet] // in force
	beforeLookup atomic.Pointer[func(rule, key string)]

	mu     sync.Mutex // of writers
	policy *Policy    // the newest, whose rules plans are bound for
}

// An overrideSet is a number for each (rule, key), which names limits that many
// customers share. The mutex of customers guards writing to it.
type overrideSet struct {
	table  *overridetable.Table
	plans  atomic.Pointer[[]*customerPlan] // by number − 1; entries are never replaced
	byText map[string]uint32
	values *customerPlans // plans by the value of an attribute
}

// A customerPlan is limits that customers of one rule share.
type customerPlan struct {
	rule     string
	override Override
	plan     atomic.Pointer[plan] // nil while there is no such rule
}

func newCustomers() *customers {
	c := new(customers)
	c.set.Store(newOverrideSet(overridetable.New()))
	return c
}

func newOverrideSet(t *overridetable.Table) *overrideSet {
	s := &overrideSet{table: t, byText: make(map[string]uint32), values: newCustomerPlans()}
	s.plans.Store(new([]*customerPlan))
	return s
}

// find returns what a customer has in place of the rule's limits, or nil.
func (c *customers) find(rule, key string) *plan {
	if f := c.beforeLookup.Load(); f != nil {
		(*f)(rule, key)
	}
	s := c.set.Load()
	n := s.table.Get(rule, key)
	plans := *s.plans.Load()
	if n == overridetable.None || int(n) > len(plans) { // of a table that others write, see Rehearse
		return nil
	}
	return plans[n-1].plan.Load()
}

// any reports whether there may be overrides at all, so that a policy without
// them makes no key that it does not need.
func (c *customers) any() bool {
	return c != nil && (len(*c.set.Load().plans.Load()) > 0 || c.beforeLookup.Load() != nil)
}

// BeforeLookup calls f before each lookup of a customer's override, in the goroutine
// of the request: f may call SetOverride, and must be quick. nil ends that. Use it
// if not all overrides are in memory.
func (p *Policy) BeforeLookup(f func(rule, key string)) {
	if f == nil {
		p.customers.beforeLookup.Store(nil)
		return
	}
	p.customers.beforeLookup.Store(&f)
}

// SetOverride gives a customer limits of their own under a rule, from the next
// request on; the zero Override takes them away. The key is as
// [Rules.Explain] shows it. A rule that the policy does not have is no error:
// the override holds once it has. The error is for limits that the store cannot
// hold, or more than [MaxPlans] different ones.
//
// What the customer has used is kept as docs/SEMANTICS.md says of changes. The
// call may run beside requests; it costs about what one decision does, and more
// for limits that no other customer has.
func (p *Policy) SetOverride(rule, key string, o Override) error {
	c := p.customers
	c.mu.Lock()
	defer c.mu.Unlock()
	set := c.set.Load()
	n, err := set.number(c.policy, rule, &o)
	if errors.Is(err, errPlans) {
		set = c.compact()
		n, err = set.number(c.policy, rule, &o)
	}
	if err != nil {
		return err
	}
	set.table.Set(rule, key, n)
	return nil
}

// Overrides returns how many customers have limits of their own, how many
// different ones those are, and what the table of them takes, in bytes.
func (p *Policy) Overrides() (customers, plans int, bytes int64) {
	set := p.customers.set.Load()
	return set.table.Len(), len(*set.plans.Load()), set.table.Bytes()
}

// A Replacement is a whole set of overrides that is made beside the one in
// force and takes its place at once. Make one with [Policy.ReplaceOverrides].
type Replacement struct {
	customers *customers
	set       *overrideSet
}

// ReplaceOverrides begins an empty set of overrides. Nothing changes before
// Commit.
func (p *Policy) ReplaceOverrides() *Replacement {
	return &Replacement{p.customers, newOverrideSet(overridetable.New())}
}

// Set is [Policy.SetOverride] for the set.
func (r *Replacement) Set(rule, key string, o Override) error {
	r.customers.mu.Lock()
	defer r.customers.mu.Unlock()
	n, err := r.set.number(r.customers.policy, rule, &o)
	if err != nil {
		return err
	}
	r.set.table.Set(rule, key, n)
	return nil
}

// Commit puts the set in force, by the rules of now. The error is for limits that
// the store cannot hold; customers who have them are left to the rule.
func (r *Replacement) Commit() error {
	c := r.customers
	c.mu.Lock()
	defer c.mu.Unlock()
	plans, err := r.set.bind(c.policy)
	r.set.use(plans)
	c.set.Store(r.set)
	return err
}

// compact forgets limits that no customer has any more, so that others find
// room, and returns the set that is in force then.
func (c *customers) compact() *overrideSet {
	old := c.set.Load()
	plans := *old.plans.Load()
	used := make([]uint32, len(plans)+1)
	old.table.Numbers(func(n uint32) { used[n] = 1 })
	var kept []*customerPlan
	for i, one := range plans {
		if used[i+1] > 0 {
			kept = append(kept, one)
			used[i+1] = uint32(len(kept))
		}
	}
	if len(kept) == len(plans) {
		return old
	}
	next := newOverrideSet(old.table.Renumber(func(n uint32) uint32 { return used[n] }))
	next.plans.Store(&kept)
	next.values = old.values
	for i, one := range kept {
		next.byText[one.id()] = uint32(i + 1)
	}
	c.set.Store(next)
	return next
}

var errPlans = fmt.Errorf("policy: overrides with more than %d different limits", MaxPlans)

// number returns the number of what an override does under a rule.
func (s *overrideSet) number(p *Policy, rule string, o *Override) (uint32, error) {
	if o.none() {
		return overridetable.None, nil
	}
	if o.Unlimited && o.Block || (o.Unlimited || o.Block) && len(o.Limits) > 0 {
		return 0, errors.New("policy: an override has limits, or is unlimited, or a block: one of these")
	}
	one := &customerPlan{rule: rule, override: *o}
	if n := s.byText[one.id()]; n > 0 {
		return n, nil
	}
	plans := *s.plans.Load()
	if len(plans) == MaxPlans {
		return 0, errPlans
	}
	next, err := one.in(p)
	if err != nil {
		return 0, err
	}
	one.plan.Store(next)
	longer := append(plans, one) // readers see the part before, which does not change
	s.plans.Store(&longer)
	n := uint32(len(longer))
	s.byText[one.id()] = n
	return n, nil
}

// bind makes plans for the rules of a policy. Where the error is not nil, some have
// none: those whose limits the store cannot hold.
func (s *overrideSet) bind(p *Policy) (plans []*plan, failed error) {
	for _, one := range *s.plans.Load() {
		next, err := one.in(p)
		failed = cmp.Or(failed, err)
		plans = append(plans, next)
	}
	return plans, failed
}

func (s *overrideSet) use(plans []*plan) {
	for i, one := range *s.plans.Load() {
		one.plan.Store(plans[i])
	}
}

// rebind makes plans for the rules of a policy that takes the place of another, all or
// none.
func (c *customers) rebind(p *Policy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := c.set.Load()
	plans, err := set.bind(p)
	if err == nil {
		set.use(plans)
		c.policy = p
	}
	return err
}

// id identifies a plan.
func (c *customerPlan) id() string { return c.rule + "\x00" + c.override.text() }

// in returns the plan in the rules of a policy, nil if these have no rule of that name.
func (c *customerPlan) in(p *Policy) (*plan, error) {
	if p == nil {
		return nil, nil
	}
	r, err := p.rules.rule(c.rule)
	if err != nil {
		return nil, nil //nolint:nilerr // it holds once there is one
	}
	text, action := c.override.text(), ""
	if len(c.override.Limits) == 0 {
		action = text
	}
	next := newPlan(r, r.name+"/"+text, ownVariant, action, c.override.Limits)
	if next.pair, err = p.pair(next); err != nil {
		return nil, fmt.Errorf("policy: an override of rule %q: %w", r.name, err)
	}
	return next, nil
}

// ownVariant is the variant of a key's own limits.
const ownVariant = "override"

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
