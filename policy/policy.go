package policy

import (
	"errors"
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/waitqueue"
	"github.com/stint-dev/stint/memstore"
)

// Options are what a policy needs beside its store. The zero value is good for
// a store in this process.
type Options struct {
	// Local decides for rules that say on_store_failure: local (the default)
	// while the store cannot. It is kept warm: what the store lets through is
	// charged here too, so that a failure mints nothing. The default is a
	// memstore of the policy's own when the store is none itself; where both
	// are missing, the store's error is returned.
	Local stint.Store
	// Nodes is how many processes share the store; Local then holds each limit
	// to a share of one in Nodes, of one unit at least. [Policy.SetNodes] changes
	// it. The default value is 1.
	Nodes int
	// Secret is the key that long keys, and keys of rules with hash_key, are
	// hashed with, and that seals reservation tokens. All processes on one
	// store need the same, of 16 bytes or more. Without one, long keys are
	// hashed without a secret, tokens hold for this process alone, and
	// hash_key is refused.
	Secret []byte
	// OnDecision is told of each request that was decided on and would be
	// charged, by any of the methods but those that only look or give back, and
	// before it waits for its turn; of several questions asked together, one by
	// one. rules are those that decided, attrs what they were asked of, cost what
	// the caller said it costs. It runs in the caller's goroutine, may be called
	// from many at once, and may keep neither attrs nor r. The default is nobody.
	OnDecision func(rules *Rules, attrs Attributes, cost int64, r *Result)
}

// A Policy is rules bound to a store. Make one with [New].
type Policy struct {
	rules     *Rules
	inProcess bool // the store is in memory, where all modes are one
	opts      Options
	main      side
	local     side                        // without a store if there is none
	customers *customers                  // overrides by the million; shared by Reload
	debts     *fallback.Debts             // to main, for what local let through; shared by Reload; nil if there is nothing to owe
	lines     *waitqueue.Lines[tokenPart] // of requests that wait; shared by Reload
}

// A side is a store and the plans of the rules bound to it.
type side struct {
	store  stint.Store
	shares *fallback.Shares // what binds limits in store, at this process's part; nil for main; shared by Reload
	plans  []stint.Bound    // by plan.id
	each   [][]stint.Bound  // by plan.id: its limits, one by one
}

// New binds rules to a store, each in its mode if that is a [ModeStore]. The
// error says which limit the store cannot hold; limits that it holds already
// are then as the rules have them, so change rules that are in use by
// [Policy.Reload].
func New(store stint.Store, rules *Rules, o Options) (*Policy, error) {
	switch {
	case store == nil:
		return nil, errors.New("policy: New without a store: memstore.New makes one")
	case rules == nil:
		return nil, errors.New("policy: New without rules: Parse reads them")
	case len(o.Secret) > 0 && len(o.Secret) < 16:
		return nil, fmt.Errorf("policy: a secret of %d bytes: at least 16", len(o.Secret))
	}
	_, inProcess := store.(*memstore.Store)
	if !inProcess && o.Local == nil {
		o.Local = memstore.New(memstore.Options{})
	}
	p := &Policy{opts: o, customers: newCustomers(), main: side{store: store}, local: side{store: o.Local}}
	p.lines = p.newLines()
	if o.Local != nil {
		p.local.shares = fallback.NewShares(o.Local, o.Nodes)
		if !inProcess {
			p.debts = fallback.NewDebts(store, o.Local, 0)
		}
	}
	return p.with(rules)
}

// with returns a policy of other rules on the stores of p.
func (p *Policy) with(rules *Rules) (*Policy, error) {
	for _, r := range rules.rules {
		if r.hashKey && len(p.opts.Secret) == 0 {
			return nil, fmt.Errorf("policy: rule %q has hash_key, which needs Options.Secret", r.name)
		}
	}
	next := *p
	next.rules = rules
	_, next.inProcess = p.main.store.(*memstore.Store)
	if err := next.main.bind(&next); err != nil {
		return nil, err
	}
	if p.local.store != nil {
		if err := next.local.bind(&next); err != nil {
			return nil, fmt.Errorf("local store: %w", err)
		}
	}
	if err := next.customers.rebind(&next); err != nil {
		return nil, err
	}
	return &next, nil
}

// A state is what the store knows the limits of a plan by.
type state struct {
	name   string
	limits []stint.Limit
}

// state returns what a plan is bound as. All plans of a rule, of tiers and
// overrides too, are forms of its limits; but where the store is not asked about
// each request, each has a name of its own.
func (p *Policy) state(of *plan) state {
	if p.inProcess || of.mode == strict {
		return state{of.rule, of.limits}
	}
	return state{of.name, of.limits}
}

// bind makes the limits of all plans known to the store.
func (s *side) bind(p *Policy) error {
	rules := p.rules
	s.plans = make([]stint.Bound, len(rules.plans))
	s.each = make([][]stint.Bound, len(rules.plans))
	for i, plan := range rules.plans {
		var err error
		of := p.state(plan)
		if s.plans[i], err = s.hold(plan.mode, of.name, of.limits...); err != nil {
			return fmt.Errorf("policy: rule %q: %w", plan.layers[0].Rule, err)
		}
		if s.each[i], err = s.single(plan.mode, of, s.plans[i]); err != nil {
			return fmt.Errorf("policy: rule %q: %w", plan.layers[0].Rule, err)
		}
	}
	return nil
}

// hold binds limits in a mode; in the local store, which knows none, to this
// process's share.
func (s *side) hold(mode, name string, limits ...stint.Limit) (stint.Bound, error) {
	if s.shares != nil {
		return s.shares.Bind(name, limits...)
	}
	return bindMode(s.store, mode, name, limits)
}

// Reload returns a policy of other rules on the same store, with what keys have
// used: in a store in this process also under a limit of another kind or
// period, as docs/RULES.md says. The policy before stays good, for requests that are on their way. When
// the store refuses a limit, its limits are put back as they were.
func (p *Policy) Reload(rules *Rules) (*Policy, error) {
	if rules == nil {
		return nil, errors.New("policy: Reload without rules: Parse reads them")
	}
	if err := check(p.main.store, rules); err != nil {
		return nil, err
	}
	next, err := p.with(rules)
	if err == nil {
		return next, nil
	}
	was := *p // whose bounds are in use
	if back := was.main.bind(p); back != nil {
		err = errors.Join(err, back)
	}
	if p.local.store != nil {
		if back := was.local.bind(p); back != nil {
			err = errors.Join(err, back)
		}
	}
	if back := was.customers.rebind(&was); back != nil {
		err = errors.Join(err, back)
	}
	return nil, err
}

// SetNodes says that so many processes share the store now, in place of
// Options.Nodes; below 1 is 1. It holds for every policy that comes of this one
// by [Policy.Reload], or that this one came of. What keys have used is carried
// over, see [fallback.Shares.SetNodes]; the error is for limits that keep the
// share they had.
func (p *Policy) SetNodes(n int) error {
	if p.local.shares == nil {
		return nil
	}
	return p.local.shares.SetNodes(n)
}

// Rules returns the rules.
func (p *Policy) Rules() *Rules { return p.rules }
