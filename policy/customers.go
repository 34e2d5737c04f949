package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/overridetable"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/waitqueue"
)

// MaxPlans is how many different overrides the customers of a policy may have between them:
// any number of customers may share one.
const MaxPlans = 100_000

// An Override is one customer's own limits under a rule, in place of what the
// rule, its tiers and the overrides of its file say. Exactly one of Limits,
// Unlimited and Block is set; the zero Override is none.
type Override struct {
	Limits           []stint.Limit
	Unlimited, Block bool
}

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

// customers are the overrides of customers, which may be millions. A policy shares them with
// all that are made of it by [Policy.Reload].
type customers struct {
	own          atomic.Pointer[overrideSet] // by SetOverride; looked up first
	set          atomic.Pointer[overrideSet] // by the last Replacement
	beforeLookup atomic.Pointer[func(rule, key string)]
	some         atomic.Bool // there is an override or a beforeLookup, or there was one

	mu     sync.Mutex // of writers
	policy *Policy    // the newest policy: plans are made for its rules
}

// An overrideSet holds overrides by rule and key, and plans by an attribute and its value.
// The mutex of customers guards writing to it.
type overrideSet struct {
	plans *shared[*customerPlan]
	tiers *shared[string]
}

// A customerPlan is the override that some customers of one rule share.
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

// A shared has a value for each of millions of pairs of texts. Few of the values differ. A table
// has a number for each pair, and values the value of each number. Reading takes no lock.
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
	if n == overridetable.None || int(n) > len(values) { // a rehearsal's table is shared, and its owner adds numbers
		return value, false
	}
	return values[n-1], true
}

// set gives a pair the value that belongs to text, and makes that value if the text is new;
// an empty text takes the pair's value away.
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

// compacted returns s without the values that no pair has any more.
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

// any reports whether there may be overrides; without them a policy makes no keys to look
// them up.
func (c *customers) any() bool {
	return c != nil && c.some.Load()
}

// BeforeLookup has f called before each lookup of a customer's override, in the goroutine of
// the request. Use it to load overrides that are not all in memory: f may call SetOverride,
// and must be quick. A nil f ends the calls.
func (p *Policy) BeforeLookup(f func(rule, key string)) {
	if f == nil {
		p.customers.beforeLookup.Store(nil)
		return
	}
	p.customers.beforeLookup.Store(&f)
	p.customers.some.Store(true)
}

// SetOverride gives a customer limits of their own under a rule, from the next request on;
// the zero Override takes away what an earlier call gave. [Rules.KeyOf] makes the key. If the
// policy has no such rule, or one without limits ([Rules.Overridable]), the override begins to hold
// once a reload brings them. The error is
// for limits that the store cannot hold, or more than [MaxPlans] different overrides. An
// override that is set here precedes one of a [Replacement], and stays when a Replacement
// takes the place of another.
//
// What the customer has used is kept as docs/SEMANTICS.md says of changes. The call may run
// beside requests. It costs about as much as a decision, and more for limits that no other
// customer has.
func (p *Policy) SetOverride(rule, key string, o Override) error {
	return p.customers.change(&p.customers.own, rule, key, &o)
}

// ChangeOverride is [Policy.SetOverride] for the overrides of the last [Replacement] that was
// committed.
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

// Overrides returns how many overrides customers have, how many different ones there are, and
// how many bytes the tables of them take.
func (p *Policy) Overrides() (customers, plans int, bytes int64) {
	for _, of := range p.customers.both() {
		customers += of.plans.table.Len()
		plans += len(of.plans.all())
		bytes += of.plans.table.Bytes()
	}
	return customers, plans, bytes
}

func (c *customers) both() [2]*overrideSet { return [2]*overrideSet{c.own.Load(), c.set.Load()} }

// A Replacement is a whole set of overrides. It is filled beside the set in force, and takes
// its place in one step. Make one with [Policy.ReplaceOverrides].
type Replacement struct {
	customers *customers
	set       *overrideSet
}

// ReplaceOverrides returns an empty set of overrides, which [Replacement.Commit] puts in the place of
// all overrides.
func (p *Policy) ReplaceOverrides() *Replacement {
	return &Replacement{p.customers, newOverrideSet()}
}

// Set is [Policy.SetOverride] for a Replacement.
func (r *Replacement) Set(rule, key string, o Override) error {
	r.customers.mu.Lock()
	defer r.customers.mu.Unlock()
	return r.set.override(r.customers.policy, rule, key, &o)
}

// Commit puts the set in force, under the rules that the newest policy has. The error is for
// limits that the store cannot hold; customers with such limits have those of the rule.
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

// changed notes that customers have limits of their own, and wakes the requests that wait in
// line: they may have room now.
func (c *customers) changed() {
	c.some.Store(true)
	c.policy.lines.EveryRoomMade(math.MaxInt64, math.MaxInt64, waitqueue.Pace{})
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

// bind makes plans for the rules of a policy, nil where the store cannot hold the limits; the
// error is the first.
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

// rebind makes plans for the rules of a policy that takes the place of another: for all
// overrides, or after an error for none.
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

// in returns the plan that the override makes under the rules of a policy, nil if they do not
// have its rule.
func (c *customerPlan) in(p *Policy) (*plan, error) {
	if p == nil {
		return nil, nil
	}
	r, err := p.rules.rule(c.rule)
	if err != nil {
		return nil, nil //nolint:nilerr // the override holds once there is such a rule
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

// SetPlan gives a plan to requests whose attribute has a value, in every rule with tiers by
// this attribute, from the next request on; a plan of "" takes it away. Without it, the value
// itself is the name of the plan. If the tiers have no plan of this name, their default
// applies, or without one the rule's own limits.
func (p *Policy) SetPlan(attribute, value, plan string) error {
	c := p.customers
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set.Load().tier(attribute, value, plan)
}

func (s *overrideSet) tier(attribute, value, plan string) error {
	return s.tiers.set(attribute, value, plan, func() (string, error) { return plan, nil })
}

// SetPlan is [Policy.SetPlan] for a Replacement.
func (r *Replacement) SetPlan(attribute, value, plan string) error {
	r.customers.mu.Lock()
	defer r.customers.mu.Unlock()
	return r.set.tier(attribute, value, plan)
}

// tierOf returns the name of a request's tier: what SetPlan gave to its value, else the
// value.
func (c *customers) tierOf(q *match.Request, by request.Attribute) string {
	v, _ := q.Value(by)
	if c != nil {
		if name, ok := c.set.Load().tiers.get(by.Name, v); ok {
			return name
		}
	}
	return v
}

// Plans returns the names of the plans of all tiers by an attribute, each once, in the order
// of the rules.
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

// TierAttributes returns the attributes by which rules have tiers, each once.
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
