package trial

import (
	"context"
	"errors"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A Store is a [stint.Store] of several processes, of which each keeps its own. What
// it binds decides; it has no other operations. It may be used from one goroutine at
// a time.
type Store struct {
	stint.Store // the first
	stores      []stint.Store
	part        func(stint.Limit) stint.Limit // that each holds; nil is all
	calls       func() int64
}

// Calls returns how often the processes have asked the server that they share, or
// would have.
func (s *Store) Calls() int64 { return s.calls() }

// bound is limits on all nodes.
type bound struct {
	stint.Bound // of the first
	each        []stint.Bound
	next        int
}

// Bind implements [stint.Store].
func (s *Store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	if s.part != nil {
		parts := make([]stint.Limit, len(limits))
		for i, l := range limits {
			parts[i] = s.part(l)
		}
		limits = parts
	}
	b := &bound{}
	for _, one := range s.stores {
		each, err := one.Bind(name, limits...)
		if err != nil {
			return nil, err
		}
		b.each = append(b.each, each)
	}
	b.Bound = b.each[0]
	return b, nil
}

// Allow implements [stint.Bound].
func (b *bound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [stint.Bound]: the next decides.
func (b *bound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	n := b.next
	b.next = (n + 1) % len(b.each)
	return b.each[n].Decide(ctx, op, key, cost)
}

// Close implements [stint.Store]: it closes all nodes.
func (s *Store) Close() error {
	var failed error
	for _, one := range s.stores {
		failed = errors.Join(failed, one.Close())
	}
	return failed
}
