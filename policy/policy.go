package policy

import (
	"errors"
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
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
	// to a share of one in Nodes, of one unit at least. The default value is 1.
	Nodes int
	// Secret is the key that long keys, and keys of rules with hash_key, are
	// hashed with, and that seals reservation tokens. All processes on one
	// store need the same, of 16 bytes or more. Without one, long keys are
	// hashed without a secret, tokens hold for this process alone, and
	// hash_key is refused.
	Secret []byte
}

// A Policy is rules bound to a store. Make one with [New].
type Policy struct {
	rules *Rules
	opts  Options
	main  side
	local side            // without a store if there is none
	debts *fallback.Debts // to main, for what local let through; shared by Reload; nil if there is nothing to owe
}

// A side is a store and the plans of the rules bound to it.
type side struct {
	store stint.Store
	modes bool            // whether limits are held in the modes of their rules
	plans []stint.Bound   // by plan.id
	each  [][]stint.Bound // by plan.id: its limits, one by one
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
	for _, r := range rules.rules {
		if r.hashKey && len(o.Secret) == 0 {
			return nil, fmt.Errorf("policy: rule %q has hash_key, which needs Options.Secret", r.name)
		}
	}
	if _, inProcess := store.(*memstore.Store); !inProcess && o.Local == nil {
		o.Local = memstore.New(memstore.Options{})
	}
	o.Nodes = max(o.Nodes, 1)
	p := &Policy{rules: rules, opts: o, main: side{store: store, modes: true}, local: side{store: o.Local}}
	if err := p.main.bind(rules, 1); err != nil {
		return nil, err
	}
	if o.Local != nil {
		if err := p.local.bind(rules, int64(o.Nodes)); err != nil {
			return nil, fmt.Errorf("local store: %w", err)
		}
	}
	if _, inProcess := store.(*memstore.Store); !inProcess && o.Local != nil {
		p.debts = fallback.NewDebts(store, o.Local, 0)
	}
	return p, nil
}

// bind makes the limits of all plans known to the store.
func (s *side) bind(rules *Rules, nodes int64) error {
	s.plans = make([]stint.Bound, len(rules.plans))
	s.each = make([][]stint.Bound, len(rules.plans))
	for i, plan := range rules.plans {
		limits := make([]stint.Limit, len(plan.limits))
		for k, l := range plan.limits {
			limits[k] = fallback.Share(l, nodes)
		}
		mode := strict
		if s.modes {
			mode = plan.mode
		}
		var err error
		if s.plans[i], err = bindMode(s.store, mode, limits); err != nil {
			return fmt.Errorf("policy: rule %q: %w", plan.layers[0].Rule, err)
		}
		if s.each[i], err = single(s.store, mode, limits, s.plans[i]); err != nil {
			return fmt.Errorf("policy: rule %q: %w", plan.layers[0].Rule, err)
		}
	}
	return nil
}

// Reload returns a policy of other rules on the same store, with what keys have
// used. The policy before stays good, for requests that are on their way. When
// the store refuses a limit, its limits are put back as they were.
func (p *Policy) Reload(rules *Rules) (*Policy, error) {
	next, err := New(p.main.store, rules, p.opts)
	if err == nil {
		next.debts = p.debts
		return next, nil
	}
	if back := p.main.bind(p.rules, 1); back != nil {
		err = errors.Join(err, back)
	}
	if p.local.store != nil {
		if back := p.local.bind(p.rules, int64(p.opts.Nodes)); back != nil {
			err = errors.Join(err, back)
		}
	}
	return nil, err
}

// Rules returns the rules.
func (p *Policy) Rules() *Rules { return p.rules }

// Explain says for every rule whether it holds for a request, and why. The
// error is a [RequestError]. Nothing is asked of the store.
func (p *Policy) Explain(attrs Attributes) (Explanation, error) { return p.rules.Explain(attrs) }
