package policy

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
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

// text tells what overrides do apart.
func (o *Override) text() string {
	switch {
	case o.Unlimited:
		return "unlimited"
	case o.Block:
		return "block"
	}
	texts := make([]string, len(o.Limits))
	for i, l := range o.Limits {
		texts[i] = l.String()
		if id := l.ID(); id != "" {
			texts[i] += " as " + id
		}
	}
	return strings.Join(texts, ", ")
}

// customers are overrides by the million: a number for each (rule, key), which
// names limits that many customers share. A policy and all that come of it by
// [Policy.Reload] have the same.
type customers struct {
	table atomic.Pointer[overridetable.Table]
	plans atomic.Pointer[[]*customerPlan] // by number − 1; entries are never replaced

	mu     sync.Mutex // of writers; it guards what follows
	byText map[string]uint32
	policy *Policy // the newest, whose rules plans are bound for
}

// A customerPlan is limits that customers of one rule share.
type customerPlan struct {
	rule     string
	override Override
	plan     atomic.Pointer[plan] // nil while there is no such rule
}

func newCustomers() *customers {
	c := &customers{byText: make(map[string]uint32)}
	c.table.Store(overridetable.New())
	c.plans.Store(new([]*customerPlan))
	return c
}

// find returns what a customer has in place of the rule's limits, or nil.
func (c *customers) find(rule, key string) *plan {
	n := c.table.Load().Get(rule, key)
	if n == overridetable.None {
		return nil
	}
	return (*c.plans.Load())[n-1].plan.Load()
}

// any reports whether there may be overrides at all, so that a policy without
// them makes no key that it does not need.
func (c *customers) any() bool { return len(*c.plans.Load()) > 0 }

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
	n, err := c.number(rule, &o)
	if err != nil {
		return err
	}
	c.table.Load().Set(rule, key, n)
	return nil
}

// Overrides returns how many customers have limits of their own, how many
// different ones those are, and what the table of them takes, in bytes.
func (p *Policy) Overrides() (customers, plans int, bytes int64) {
	t := p.customers.table.Load()
	return t.Len(), len(*p.customers.plans.Load()), t.Bytes()
}

// A Replacement is a whole set of overrides that is made beside the one in
// force and takes its place at once. Make one with [Policy.ReplaceOverrides].
type Replacement struct {
	customers *customers
	table     *overridetable.Table
}

// ReplaceOverrides begins an empty set of overrides. Nothing changes before
// Commit.
func (p *Policy) ReplaceOverrides() *Replacement {
	return &Replacement{p.customers, overridetable.New()}
}

// Set is [Policy.SetOverride] for the set.
func (r *Replacement) Set(rule, key string, o Override) error {
	r.customers.mu.Lock()
	defer r.customers.mu.Unlock()
	n, err := r.customers.number(rule, &o)
	if err != nil {
		return err
	}
	r.table.Set(rule, key, n)
	return nil
}

// Commit puts the set in force.
func (r *Replacement) Commit() { r.customers.table.Store(r.table) }

// number returns the number of what an override does under a rule.
func (c *customers) number(rule string, o *Override) (uint32, error) {
	if o.none() {
		return overridetable.None, nil
	}
	if o.Unlimited && o.Block || (o.Unlimited || o.Block) && len(o.Limits) > 0 {
		return 0, errors.New("policy: an override has limits, or is unlimited, or a block: one of these")
	}
	id := rule + "\x00" + o.text()
	if n := c.byText[id]; n > 0 {
		return n, nil
	}
	plans := *c.plans.Load()
	if len(plans) == MaxPlans {
		return 0, fmt.Errorf("policy: overrides with more than %d different limits", MaxPlans)
	}
	one := &customerPlan{rule: rule, override: *o}
	if err := one.bind(c.policy); err != nil {
		return 0, err
	}
	longer := append(plans, one) // readers see the part before, which does not change
	c.plans.Store(&longer)
	n := uint32(len(longer))
	c.byText[id] = n
	return n, nil
}

// rebind makes plans for the rules of a policy that takes the place of another.
func (c *customers) rebind(p *Policy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range *c.plans.Load() {
		if err := one.bind(p); err != nil {
			return err
		}
	}
	c.policy = p
	return nil
}

// bind makes the plan for the rule of this name.
func (c *customerPlan) bind(p *Policy) error {
	var r *rule
	if p != nil {
		r = p.rules.byName(c.rule)
	}
	if r == nil {
		c.plan.Store(nil)
		return nil
	}
	next, err := p.customerPlan(r, &c.override)
	if err != nil {
		return fmt.Errorf("policy: an override of rule %q: %w", r.name, err)
	}
	c.plan.Store(next)
	return nil
}

func (r *Rules) byName(name string) *rule {
	for _, one := range r.rules {
		if one.name == name {
			return one
		}
	}
	return nil
}

// customerPlan returns limits or an action as a plan of a rule, bound on both
// sides.
func (p *Policy) customerPlan(r *rule, o *Override) (*plan, error) {
	const variant = "override"
	next := &plan{name: r.name + "/" + o.text(), mode: r.mode, variant: variant, limits: o.Limits}
	if len(o.Limits) == 0 {
		action := o.text()
		next.id, next.action = -1, action
		next.layers = []*Layer{{Rule: r.name, Label: r.name, Variant: variant, Text: action, Action: action, Shadow: r.shadow}}
		return next, nil
	}
	for i, l := range o.Limits {
		label := r.name
		if len(o.Limits) > 1 {
			label += fmt.Sprintf("/%d", i+1)
		}
		next.layers = append(next.layers, &Layer{Rule: r.name, Label: label, Variant: variant, Limit: l, Text: l.String(), Shadow: r.shadow})
	}
	g := &Given{rule: r, plan: next}
	next.given = g
	return next, g.bind(p, r.mode)
}
