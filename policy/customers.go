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
	"github.com/stint-dev/stint/internal/request"
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
	own          atomic.Pointer[overrideSet] // of SetOverride, looked up first
	set          atomic.Pointer[overrideSet] // of Replacement
	beforeLookup atomic.Pointer[func(rule, key string)]
	some         atomic.Bool // of these there is one, or was

	mu     sync.Mutex // of writers
	policy *Policy    // the newest, whose rules plans are bound for
}

// An overrideSet is what customers have: limits by rule and key, and the name of a plan
// of tiers by an attribute and its value. The mutex of customers guards writing to it.
type overrideSet struct {
	plans *shared[*customerPlan]
	tiers *shared[string]
}

// A customerPlan is limits that customers of one rule share.
type customerPlan struct {
	rule     string
	override Override
	plan     atomic.Pointer[plan] // nil while there is no such rule
}

func newCustomers() *customers {
	c := new(customers)
	c.own.Store(newOverrideSet())
	c.set.Store(newOverrideSet())
	return c
}

func newOverrideSet() *overrideSet {
	return &overrideSet{newShared[*customerPlan](overridetable.New()), newShared[string](overridetable.New())}
}

// A shared has a value for each of millions of pairs, few of which differ: a number for
// each in a table, and the values by number. Reading takes no lock.
type shared[T any] struct {
	table  *overridetable.Table
	values atomic.Pointer[[]T] // by number − 1; entries are never replaced
	byText map[string]uint32
}

func newShared[T any](table *overridetable.Table) *shared[T] {
	s := &shared[T]{table: table, byText: make(map[string]uint32)}
	s.values.Store(new([]T))
	return s
}

func (s *shared[T]) all() []T { return *s.values.Load() }

func (s *shared[T]) get(a, b string) (value T, ok bool) {
	values := s.all()
	if len(values) == 0 {
		return value, false
	}
	n := s.table.Get(a, b)
	if n == overridetable.None || int(n) > len(values) { // of a table that others write, see Rehearse
		return value, false
	}
	return values[n-1], true
}

// set gives a pair the value of a text, which is made if it is new; no text takes it away.
func (s *shared[T]) set(a, b, text string, value func() (T, error)) error {
	n := s.byText[text]
	if text != "" && n == 0 {
		if len(s.all()) == MaxPlans {
			return errPlans
		}
		one, err := value()
		if err != nil {
			return err
		}
		longer := append(s.all(), one) // readers see the part before, which does not change
		s.values.Store(&longer)
		n = uint32(len(longer))
		s.byText[text] = n
	}
	s.table.Set(a, b, n)
	return nil
}

// compacted returns the same without the values that no pair has any more.
func (s *shared[T]) compacted() *shared[T] {
	used := make([]uint32, len(s.all())+1)
	s.table.Numbers(func(n uint32) { used[n] = 1 })
	var kept []T
	for i, one := range s.all() {
		if used[i+1] > 0 {
			kept = append(kept, one)
			used[i+1] = uint32(len(kept))
		}
	}
	if len(kept) == len(s.all()) {
		return s
	}
	next := newShared[T](s.table.Renumber(func(n uint32) uint32 { return used[n] }))
	next.values.Store(&kept)
	for text, n := range s.byText {
		if used[n] > 0 {
			next.byText[text] = used[n]
		}
	}
	return next
}

var errPlans = fmt.Errorf("policy: more than %d different overrides, or plans", MaxPlans)

// find returns what a customer has in place of the rule's limits, or nil.
func (c *customers) find(rule, key string) *plan {
	if f := c.beforeLookup.Load(); f != nil {
		(*f)(rule, key)
	}
	one, ok := c.own.Load().plans.get(rule, key)
	if !ok {
		one, ok = c.set.Load().plans.get(rule, key)
	}
	if ok {
		return one.plan.Load()
	}
	return nil
}

// any reports whether there may be overrides at all, so that a policy without
// them makes no key that it does not need.
func (c *customers) any() bool {
	return c != nil && c.some.Load()
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
	p.customers.some.Store(true)
}

// SetOverride gives a customer limits of their own under a rule, from the next
// request on; the zero Override takes away what this call gave. The key is as
// [Rules.Explain] shows it. A rule that the policy does not have is no error:
// the override holds once it has. The error is for limits that the store cannot
// hold, or more than [MaxPlans] different ones. It goes before one of a
// [Replacement], and stays when another takes its place.
//
// What the customer has used is kept as docs/SEMANTICS.md says of changes. The
// call may run beside requests; it costs about what one decision does, and more
// for limits that no other customer has.
func (p *Policy) SetOverride(rule, key string, o Override) error {
	return p.customers.change(&p.customers.own, rule, key, &o)
}

// ChangeOverride is [Policy.SetOverride] for the set of the last [Replacement] that was
// put in force.
func (p *Policy) ChangeOverride(rule, key string, o Override) error {
	return p.customers.change(&p.customers.set, rule, key, &o)
}

func (c *customers) change(of *atomic.Pointer[overrideSet], rule, key string, o *Override) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed()
	err := of.Load().override(c.policy, rule, key, o)
	if errors.Is(err, errPlans) {
		was := of.Load()
		of.Store(&overrideSet{was.plans.compacted(), was.tiers})
		err = of.Load().override(c.policy, rule, key, o)
	}
	return err
}

// Overrides returns how many overrides customers have, how many different ones those
// are, and what the tables of them take, in bytes.
func (p *Policy) Overrides() (customers, plans int, bytes int64) {
	for _, of := range p.customers.both() {
		customers += of.plans.table.Len()
		plans += len(of.plans.all())
		bytes += of.plans.table.Bytes()
	}
	return customers, plans, bytes
}

func (c *customers) both() [2]*overrideSet { return [2]*overrideSet{c.own.Load(), c.set.Load()} }

// A Replacement is a whole set of overrides that is made beside the one in
// force and takes its place at once. Make one with [Policy.ReplaceOverrides].
type Replacement struct {
	customers *customers
	set       *overrideSet
}

// ReplaceOverrides begins an empty set of overrides. Nothing changes before
// Commit.
func (p *Policy) ReplaceOverrides() *Replacement {
	return &Replacement{p.customers, newOverrideSet()}
}

// Set is [Policy.SetOverride] for the set.
func (r *Replacement) Set(rule, key string, o Override) error {
	r.customers.mu.Lock()
	defer r.customers.mu.Unlock()
	return r.set.override(r.customers.policy, rule, key, &o)
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
	c.changed()
	return err
}

// changed says that some have limits of their own, and tells those that wait.
func (c *customers) changed() {
	c.some.Store(true)
	c.policy.lines.EveryRoomMade()
}

// override gives a key under a rule what an override says.
func (s *overrideSet) override(p *Policy, rule, key string, o *Override) error {
	if o.none() {
		return s.plans.set(rule, key, "", nil)
	}
	if o.Unlimited && o.Block || (o.Unlimited || o.Block) && len(o.Limits) > 0 {
		return errors.New("policy: an override has limits, or is unlimited, or a block: one of these")
	}
	return s.plans.set(rule, key, rule+"\x00"+o.text(), func() (*customerPlan, error) {
		one := &customerPlan{rule: rule, override: *o}
		next, err := one.in(p)
		one.plan.Store(next)
		return one, err
	})
}

// bind makes plans for the rules of a policy. Where the error is not nil, some have
// none: those whose limits the store cannot hold.
func (s *overrideSet) bind(p *Policy) (plans []*plan, failed error) {
	for _, one := range s.plans.all() {
		next, err := one.in(p)
		failed = cmp.Or(failed, err)
		plans = append(plans, next)
	}
	return plans, failed
}

func (s *overrideSet) use(plans []*plan) {
	for i, one := range s.plans.all() {
		one.plan.Store(plans[i])
	}
}

// rebind makes plans for the rules of a policy that takes the place of another, all or
// none.
func (c *customers) rebind(p *Policy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var plans [2][]*plan
	for i, set := range c.both() {
		var err error
		if plans[i], err = set.bind(p); err != nil {
			return err
		}
	}
	for i, set := range c.both() {
		set.use(plans[i])
	}
	c.policy = p
	return nil
}

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
	next := newPlan(r, r.Name+"/"+text, ownVariant, action, c.override.Limits)
	if next.pair, err = p.pair(next); err != nil {
		return nil, fmt.Errorf("policy: an override of rule %q: %w", r.Name, err)
	}
	return next, nil
}

// ownVariant is the variant of a key's own limits.
const ownVariant = "override"

// SetPlan says that requests whose attribute has a value have a plan, in every
// rule with tiers by this attribute, from the next request on; "" takes it away.
// Without one, the value itself names the plan. A plan that the tiers do not have
// is as any other value which names none.
func (p *Policy) SetPlan(attribute, value, plan string) error {
	c := p.customers
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set.Load().tier(attribute, value, plan)
}

func (s *overrideSet) tier(attribute, value, plan string) error {
	return s.tiers.set(attribute, value, plan, func() (string, error) { return plan, nil })
}

// SetPlan is [Policy.SetPlan] for the set.
func (r *Replacement) SetPlan(attribute, value, plan string) error {
	r.customers.mu.Lock()
	defer r.customers.mu.Unlock()
	return r.set.tier(attribute, value, plan)
}

// tierOf returns the name of a request's tier: what [Policy.SetPlan] says of its value,
// else the value.
func (c *customers) tierOf(q *match.Request, by request.Attribute) string {
	v, _ := q.Value(by)
	if c != nil {
		if name, ok := c.set.Load().tiers.get(by.Name, v); ok {
			return name
		}
	}
	return v
}

// Plans returns the names of the plans that tiers by an attribute have, of all
// rules, in the order of the rules; none if no rule has tiers by it.
func (r *Rules) Plans(attribute string) (names []string) {
	seen := make(map[string]bool)
	for _, one := range r.rules {
		if one.Tiers == nil || one.Tiers.By.Name != attribute {
			continue
		}
		for _, name := range one.Tiers.Names {
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
		if one.Tiers != nil && !seen[one.Tiers.By.Name] {
			seen[one.Tiers.By.Name] = true
			names = append(names, one.Tiers.By.Name)
		}
	}
	return names
}
