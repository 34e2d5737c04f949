package simulate

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// Rules decide whole requests as in production, but at virtual moments and on a store in memory.
// They may be used from one goroutine at a time.
type Rules struct {
	Clock  Clock
	Store  *memstore.Store
	Policy *policy.Policy

	result policy.Result
	failed error // the errors of Respond so far
}

// NewRules returns rules whose clock starts at begin. The function bind puts them on a store that
// keeps mostKeys keys; 0 means the default of package memstore. Close the rules after use.
func NewRules(begin int64, mostKeys int, bind func(*memstore.Store) (*policy.Policy, error)) (*Rules, error) {
	r := new(Rules)
	r.Clock.Advance(begin)
	r.Store = memstore.New(memstore.Options{Now: r.Clock.Now, MaxKeys: mostKeys})
	var err error
	if r.Policy, err = bind(r.Store); err != nil {
		return nil, errors.Join(err, r.Store.Close())
	}
	return r, nil
}

// Close releases what the rules hold.
func (r *Rules) Close() {
	r.Policy.Close()
	_ = r.Store.Close() // it is in memory
}

// A Call is one request to rules.
type Call struct {
	At         int64 // nanoseconds since the Unix epoch
	Attributes policy.Attributes
	Cost       int64         // multiplies the cost that each rule says
	Costs      policy.Costs  // the costs for single rules, in place of Cost
	Lasts      time.Duration // how long the request takes, ≥ 0
	// Respond settles what the response costs when the request ends. If it is nil, the response is
	// unknown, and costs what the rules reserve.
	Respond func(*policy.Pending) error
}

// Decide asks the rules at the moment of a request, after ending all requests that are over by
// then. The result is valid until the next call. The error is that of [policy.Policy.Decide], or
// the error of a Respond that has run before.
func (r *Rules) Decide(ctx context.Context, c Call) (*policy.Result, error) {
	r.Clock.Advance(c.At)
	if r.failed != nil {
		return nil, r.failed
	}
	r.result.WillRelease, r.result.Costs = true, c.Costs
	var pending *policy.Pending
	var err error
	if c.Respond == nil {
		err = r.Policy.Decide(ctx, c.Attributes, c.Cost, &r.result)
	} else if pending, _, err = r.Policy.Begin(ctx, c.Attributes, c.Cost, false, -1, &r.result); pending != nil {
		r.Clock.After(c.At, c.Lasts, func() { r.failed = errors.Join(r.failed, c.Respond(pending)) })
	}
	if end := r.result.Release(); end != nil {
		r.Clock.After(c.At, c.Lasts, end)
	}
	return &r.result, err
}
