package fallback

import (
	"context"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// A bound implements [stint.Bound] by the same limits in both stores.
type bound struct {
	store *Store
	pair  *Pair
}

// Bind implements [stint.Store]. The local store holds each limit to this
// process's [Share].
func (s *Store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	pair, err := s.failover.Bind(nil, name, limits...)
	if err != nil {
		return nil, err
	}
	return &bound{s, pair}, nil
}

// Limits implements [stint.Bound].
func (b *bound) Limits() []stint.Limit { return b.pair.Main.Limits() }

// Name implements [stint.Bound].
func (b *bound) Name() string { return b.pair.Main.Name() }

// Allow implements [stint.Bound].
func (b *bound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [stint.Bound].
func (b *bound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	s := b.store
	d, err := stint.Decision{}, b.pair.Unsettled(key)
	if err == nil {
		d, err = b.pair.Main.Decide(ctx, op, key, cost)
	}
	if err == nil {
		s.failover.Answered() // a Caching store may have answered from memory; Answered finds out
		b.warm(key, d.Taken)
		return d, nil
	}
	if !s.fails(ctx, err) { // no failure: the call was wrong, its caller has gone, or s is closed
		return d, err
	}
	why := err
	d, err = s.instead(nil, func() (stint.Decision, error) { // the local store decides, or the mode Open or Closed
		return b.pair.Local.Decide(context.WithoutCancel(ctx), op, key, cost)
	})
	b.pair.Owe(why, key, s.charged(op, &d, cost, err), d.Allowed) // notes nothing if the shared store may have charged it
	return d, err
}

// charged returns the units that the local store has charged. A denied request is charged only to
// limits that count denied requests.
func (s *Store) charged(op meter.Op, d *stint.Decision, cost int64, err error) int64 {
	switch {
	case err != nil || s.mode != Local || op == meter.OpPeek || Excusable(d):
		return 0
	case d.Allowed:
		return d.Taken
	case op == meter.OpTakeUpTo:
		return min(cost, 1)
	}
	return cost
}

// split returns the layers as each store knows them. Both have the caller's Answers, which the
// store that decides fills.
func (s *Store) split(layers []stint.Layer) (main, local []stint.Layer, err error) {
	both := make([]stint.Layer, 2*len(layers))
	main, local = both[:len(layers)], both[len(layers):]
	for i, l := range layers {
		b, ok := l.Bound.(*bound)
		if !ok || b.store != s {
			return nil, nil, layercheck.One(i, &l, false, 0)
		}
		main[i], local[i] = l, l
		main[i].Bound, local[i].Bound = b.pair.Main, b.pair.Local
		main[i].Raises, local[i].Raises = inStores(l.Raises)
	}
	return main, local, nil
}

// warm charges the local store with what the shared one has let through in this process, at most up
// to this process's share.
func (s *Store) warm(layers []stint.Layer, taken int64) {
	for _, l := range layers {
		l.Bound.(*bound).warm(l.Key, units(taken, l.Weight))
	}
}

func (b *bound) warm(key string, units int64) {
	if b.store.mode == Local {
		b.pair.Warm(key, units)
	}
}

// owe notes what the local store has charged in place of the shared one.
func (s *Store) owe(why error, layers []stint.Layer, charged int64, passed bool) {
	for _, l := range layers {
		l.Bound.(*bound).pair.Owe(why, l.Key, units(charged, l.Weight), passed)
	}
}

// units returns the units that a layer charges for a cost, at most the greatest int64.
func units(cost, weight int64) int64 {
	units, _ := satmath.Mul(cost, max(weight, 1))
	return units
}
