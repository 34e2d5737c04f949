package policy

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/arrivals"
	"github.com/stint-dev/stint/internal/waitqueue"
	"github.com/stint-dev/stint/memstore"
)

// Options are what a policy needs beside its store. The zero value suits a store in
// this process.
type Options struct {
	// Local decides for rules with on_store_failure: local (the default) while
	// the store cannot. It is kept warm: what the store lets through is charged
	// here too, so that a failure grants no fresh burst. The default is a memstore
	// of the policy's own if the store is not in this process; otherwise there
	// is none, and the store's error is returned.
	Local stint.Store
	// Nodes is how many processes share the store. Local holds each limit to the Nodes-th
	// part of it, and to at least one unit. [Policy.SetNodes] changes the number. The default
	// value is 1.
	Nodes int
	// Secret hashes long keys and the keys of rules with hash_key, and seals the IDs of
	// reservations. All processes on one store need the same secret, of 16 bytes or more.
	// Without a secret, long keys are hashed by a plain SHA-256, IDs of reservations are
	// valid in this process alone, and rules with hash_key are refused.
	Secret []byte
	// OnDecision is called for each request that was decided on and is charged if it passes:
	// by every method except those that only look or give back. It is called before the
	// request waits in a queue, and once for each request of a batch. rules are those that
	// decided, attrs the request's attributes, cost the cost that the caller gave. It runs in
	// the caller's goroutine, may be called from many at once, and must not keep attrs or r.
	// Optional.
	OnDecision func(rules *Rules, attrs Attributes, cost int64, r *Result)
}

// A Policy is rules bound to a store. Make one with [New].
type Policy struct {
	rules     *Rules
	inProcess bool // the store is in memory, where all modes are one
	opts      Options
	main      stint.Store
	local     stint.Store                    // nil if there is none
	failover  *fallback.Failover             // decides by local while main fails; shared by Reload
	pairs     []*fallback.Pair               // by plan.id: its limits in both stores
	customers *customers                     // overrides by the million; shared by Reload
	lines     *arrivals.Lines                // of requests that wait for room; shared by Reload
	queued    *waitqueue.Lines[reservedPart] // of requests that a leaky_queue holds until their start; shared by Reload
	room      *inflight.Room                 // of limits in flight; nil if the store has none
	localRoom *inflight.Room                 // of the local store beside a shared one, or nil
}

// New binds rules to a store, each rule in its mode if the store is a [ModeStore]. The error
// says which limit the store cannot hold.
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
	if err := check(store, rules); err != nil {
		return nil, err
	}
	return on(store, o, newCustomers()).with(rules)
}

// on returns a policy without rules on a store and its options' local one.
func on(store stint.Store, o Options, c *customers) *Policy {
	p := &Policy{
		opts: o, customers: c, main: store, local: o.Local,
		failover: fallback.NewFailover(store, fallback.Options{Local: o.Local, Nodes: o.Nodes}),
	}
	_, p.inProcess = store.(*memstore.Store)
	p.queued = p.newLines()
	p.room, _ = stint.RoomOf(store) // if there is none, pair refuses limits in flight
	p.lines = &arrivals.Lines{Owner: lineOwner{store, p.room}, Most: mostWaiting}
	if !p.inProcess && p.room != nil && o.Local != nil {
		p.localRoom, _ = stint.RoomOf(o.Local)
	}
	return p
}

// with returns a policy of other rules on the stores of p.
func (p *Policy) with(rules *Rules) (*Policy, error) {
	for _, r := range rules.rules {
		if r.HashKey && len(p.opts.Secret) == 0 {
			return nil, fmt.Errorf("policy: rule %q has hash_key, which needs a secret: Options.Secret, or --secret-file of the command", r.Name)
		}
	}
	next := *p
	next.rules = rules
	if err := next.bind(); err != nil {
		return nil, err
	}
	if err := next.customers.rebind(&next); err != nil {
		return nil, err
	}
	return &next, nil
}

// stateName returns the name that the state of a plan belongs to. All plans of a rule, those
// of tiers and overrides too, share one name. Only where the store is not asked about each
// request does each plan have its own.
func (p *Policy) stateName(of *plan) string {
	if p.inProcess || of.mode == strict {
		return of.rule
	}
	return of.name
}

// OneState reports whether limits of one kind and period have one state under all plans of a rule: its own,
// its tiers and overrides.
func (p *Policy) OneState(rule string) bool {
	one := p.rules.byName[rule]
	return one != nil && (p.inProcess || !slices.ContainsFunc(one.allPlans(), func(of *plan) bool { return of.mode != strict }))
}

func (p *Policy) bind() error {
	p.pairs = make([]*fallback.Pair, len(p.rules.plans))
	for i, plan := range p.rules.plans {
		var err error
		if p.pairs[i], err = p.pair(plan); err != nil {
			return fmt.Errorf("policy: rule %q: %w", plan.rule, err)
		}
		if i%64 == 63 { // so that requests are decided meanwhile
			runtime.Gosched()
		}
	}
	return nil
}

// pair makes the limits over time of a plan known to both stores, and returns nil if there
// are none. The main store holds them in the plan's mode, the local one, which knows no
// modes, at this process's share.
func (p *Policy) pair(of *plan) (*fallback.Pair, error) {
	for _, l := range of.inFlight {
		if p.room == nil {
			_, err := stint.RoomOf(p.main)
			return nil, err
		}
		if err := p.room.Check(l.Limit.Count()); err != nil {
			return nil, err
		}
	}
	if !of.timed {
		return nil, nil
	}
	return p.failover.Bind(func(name string, limits ...stint.Limit) (stint.Bound, error) {
		return bindMode(p.main, of.mode, name, limits)
	}, p.stateName(of), of.limits...)
}

// Reload returns a policy of other rules on the same store. What keys have used is kept as
// docs/RULES.md says. p stays valid, for requests that are still running. If the store
// refuses a limit, Reload returns its error, and p decides as it did.
func (p *Policy) Reload(rules *Rules) (*Policy, error) {
	if rules == nil {
		return nil, errors.New("policy: Reload without rules: Parse reads them")
	}
	if err := check(p.main, rules); err != nil {
		return nil, err
	}
	next, err := p.with(rules)
	p.lines.EveryRoomMade(math.MaxInt64, math.MaxInt64, waitqueue.Pace{})
	return next, err
}

// SetNodes sets the number of processes that share the store, in place of Options.Nodes; a
// number below 1 counts as 1. It applies to every policy of the same chain of
// [Policy.Reload], before this one and after. What keys have used is carried over, see
// [fallback.Shares.SetNodes]. The error is for limits that could not be changed and keep the
// share they had.
func (p *Policy) SetNodes(n int) error {
	return p.failover.SetNodes(n)
}

// Rules returns the rules that the policy decides by. They do not change.
func (p *Policy) Rules() *Rules { return p.rules }

// A ModeStore is a store that several processes share and that need not be asked about every
// request: the mode of a rule says how its limits are held. A request may have limits of
// several modes.
type ModeStore interface {
	stint.Store
	// BindMode is Bind for limits that are held in a mode: "strict", "lease", "async" or
	// "share". The error says which limit cannot be held in this mode, and why.
	BindMode(mode, name string, limits ...stint.Limit) (stint.Bound, error)
}

// A Checker is a store that can say, without changing anything, what it would refuse to bind.
// [New] and [Policy.Reload] ask it about all limits before they bind the first: a limit that
// is bound again loses what this process holds of it in hand, and would lose it even where
// the rules are refused in the end.
type Checker interface {
	// Check returns why BindMode would refuse limits.
	Check(mode string, limits ...stint.Limit) error
}

// check asks the store about the limits of all rules, if it is a [Checker].
func check(store stint.Store, rules *Rules) error {
	c, ok := store.(Checker)
	if !ok {
		return nil
	}
	for _, plan := range rules.plans {
		if !plan.timed {
			continue
		}
		if err := c.Check(plan.mode, plan.limits...); err != nil {
			return fmt.Errorf("policy: rule %q: %w", plan.rule, err)
		}
	}
	return nil
}

// strict is the mode in which the store is asked about each request.
const strict = "strict"

// bindMode binds the limits of a rule in its mode. In the memory of one process
// nothing is shared, and every mode is the same.
func bindMode(store stint.Store, mode, name string, limits []stint.Limit) (stint.Bound, error) {
	if modes, ok := store.(ModeStore); ok {
		return modes.BindMode(mode, name, limits...)
	}
	if _, inProcess := store.(*memstore.Store); inProcess || mode == strict {
		return store.Bind(name, limits...)
	}
	return nil, fmt.Errorf("mode %s: the store decides every request itself: write mode: strict", mode)
}
