package fallback

import (
	"context"
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// bound implements [stint.Bound]: the same limits in both stores.
type bound struct {
	store       *Store
	main, local stint.Bound
	each        []pair
}

// A pair is one limit in both stores.
type pair struct{ main, local stint.Bound }

// Bind implements [stint.Store]. The local store holds each limit to this
// process's share.
func (s *Store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b := &bound{store: s, each: make([]pair, len(limits))}
	var err error
	if b.main, err = s.main.Bind(name, limits...); err != nil {
		return nil, err
	}
	if b.local, err = s.shares.Bind(name, limits...); err != nil {
		return nil, fmt.Errorf("in the local store: %w", err)
	}
	for i := range limits {
		if b.each[i].main, err = Apart(b.main, i, s.main.Bind); err != nil {
			return nil, err
		}
		if b.each[i].local, err = Apart(b.local, i, s.local.Bind); err != nil {
			return nil, fmt.Errorf("in the local store: %w", err)
		}
	}
	return b, nil
}

// Limits implements [stint.Bound].
func (b *bound) Limits() []stint.Limit { return b.main.Limits() }

// Name implements [stint.Bound].
func (b *bound) Name() string { return b.main.Name() }

// Allow implements [stint.Bound].
func (b *bound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [stint.Bound].
func (b *bound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	s := b.store
	d, err := b.main.Decide(ctx, op, key, cost)
	if err == nil {
		s.answered()
		b.warm(key, d.Taken, 1)
		return d, nil
	}
	if !s.fails(ctx, err) {
		return d, err
	}
	d, err, by := s.instead(err, func() (stint.Decision, error) {
		return b.local.Decide(context.WithoutCancel(ctx), op, key, cost)
	})
	if by {
		b.owe(key, d.Taken, 1)
	}
	return d, err
}

// split returns the layers as each store knows them. Answers are the caller's:
// whichever store decides writes them.
func (s *Store) split(layers []stint.Layer) (main, local []stint.Layer, err error) {
	both := make([]stint.Layer, 2*len(layers))
	main, local = both[:len(layers)], both[len(layers):]
	for i, l := range layers {
		b, ok := l.Bound.(*bound)
		if !ok || b.store != s {
			return nil, nil, fmt.Errorf("%w: layer %d is bound to another store", stint.ErrLayers, i)
		}
		main[i], local[i] = l, l
		main[i].Bound, local[i].Bound = b.main, b.local
	}
	return main, local, nil
}

// warm charges the local store with what the shared one has let through: each
// limit by itself, as far as its share goes.
func (s *Store) warm(layers []stint.Layer, taken int64) {
	for _, l := range layers {
		l.Bound.(*bound).warm(l.Key, taken, l.Weight)
	}
}

func (b *bound) warm(key string, taken, weight int64) {
	if taken == 0 || b.store.mode != Local {
		return
	}
	units, _ := satmath.Mul(taken, max(weight, 1))
	for _, one := range b.each {
		// An error leaves it colder, which is no reason to deny.
		_, _ = one.local.Decide(context.Background(), meter.OpTakeUpTo, key, units)
	}
}

// owe notes what the local store has let through by itself.
func (s *Store) owe(layers []stint.Layer, taken int64) {
	for _, l := range layers {
		l.Bound.(*bound).owe(l.Key, taken, l.Weight)
	}
}

func (b *bound) owe(key string, taken, weight int64) {
	if taken == 0 {
		return
	}
	units, _ := satmath.Mul(taken, max(weight, 1))
	for _, one := range b.each {
		b.store.debts.Add(one.main, one.local, key, units)
	}
}
