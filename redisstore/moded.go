package redisstore

import (
	"context"
	"fmt"
	"math"
	"math/bits"

	"github.com/stint-dev/stint"
)

// moded implements [stint.Bound]: limits on one key, each in its mode.
type moded struct {
	*modes
	name  string
	all   []*single
	whole *bound      // all of them as the server holds them; nil in mode Share
	local stint.Bound // all of them in memory; nil but in mode Share
}

// Limits implements [stint.Bound].
func (b *moded) Limits() []stint.Limit {
	out := make([]stint.Limit, len(b.all))
	for i, one := range b.all {
		switch {
		case one.mode == Share:
			out[i] = b.shared(one.name)
		case one.current():
			out[i] = one.limit
		default:
			out[i] = one.strict.Limits()[0]
		}
	}
	return out
}

// Name implements [stint.Bound].
func (b *moded) Name() string { return b.name }

// Allow implements [stint.Bound].
func (b *moded) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	if len(b.all) == 1 && b.local == nil {
		return b.all[0].allow(ctx, key, cost)
	}
	d, err := b.Decide(ctx, stint.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [stint.Bound].
func (b *moded) Decide(ctx context.Context, op stint.Op, key string, cost int64) (stint.Decision, error) {
	switch {
	case b.local != nil:
		return b.local.Decide(ctx, op, key, cost)
	case len(b.all) == 1:
		return b.all[0].decide(ctx, op, key, cost)
	}
	return b.decide(ctx, op, []stint.Layer{{Bound: b, Key: key}}, cost)
}

// An item is one limit of a request with several layers.
type item struct {
	*single
	key    string
	weight int64
	answer *stint.Decision // where its own goes, or nil
	own    stint.Decision  // in its own units
	held   hold
	told   bool // own is what it answered
}

// flatten returns the limits of a request.
func (m *modes) flatten(layers []stint.Layer) ([]item, error) {
	var items []item
	for i, layer := range layers {
		b, ok := layer.Bound.(*moded)
		switch {
		case !ok || b.modes != m:
			return nil, fmt.Errorf("%w: layer %d is not bound to a mode of this store", stint.ErrLayers, i)
		case layer.Weight < 0:
			return nil, fmt.Errorf("%w: a weight of %d", stint.ErrCost, layer.Weight)
		case layer.Answers != nil && len(layer.Answers) < len(b.all):
			return nil, fmt.Errorf("%w: room for %d answers of %d limits", stint.ErrLayers, len(layer.Answers), len(b.all))
		}
		for k, one := range b.all {
			for j := range items {
				if items[j].key == layer.Key && items[j].name == one.name {
					return nil, fmt.Errorf("%w: the same key under limit %q twice", stint.ErrLayers, one.name)
				}
			}
			it := item{single: one, key: layer.Key, weight: max(layer.Weight, 1)}
			if layer.Answers != nil {
				it.answer = &layer.Answers[k]
			}
			items = append(items, it)
		}
	}
	if len(items) == 0 || len(items) > stint.MaxLayers {
		return nil, fmt.Errorf("%w: %d of them: from 1 to %d", stint.ErrLayers, len(items), stint.MaxLayers)
	}
	return items, nil
}

// here reports whether the item is decided in this process, if it can be.
func (it *item) here(op stint.Op) bool {
	return it.mode == Share || op == stint.OpTake && (it.lease != nil || it.async != nil)
}

// units returns what a cost of the request is in the item's own, and whether
// an int64 holds it.
func (it *item) units(cost int64) (int64, bool) {
	high, low := bits.Mul64(uint64(cost), uint64(it.weight))
	return int64(low), high == 0 && low <= math.MaxInt64
}

// Decide implements [stint.Store].
func (m *modes) Decide(ctx context.Context, op stint.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if m.store.closed.Load() {
		return stint.Decision{}, stint.ErrClosed
	}
	return m.decide(ctx, op, layers, cost)
}

func (m *modes) decide(ctx context.Context, op stint.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	items, err := m.flatten(layers)
	if err != nil {
		return stint.Decision{}, err
	}
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	if len(items) == 1 && items[0].weight == 1 && items[0].mode != Share {
		d, err := items[0].single.decide(ctx, op, items[0].key, cost)
		if items[0].answer != nil && err == nil {
			*items[0].answer = d
		}
		return d, err
	}
	here, shares, kept := 0, 0, true
	for i := range items {
		kept = kept && items[i].denied != nil
		if items[i].here(op) {
			here++
		}
		if items[i].mode == Share {
			shares++
		}
	}
	switch {
	case shares == len(items):
		return m.local.Load().Decide(ctx, op, m.unwrap(layers), cost)
	case here == 0 && (op == stint.OpPeek || !kept) || cost == 0 && shares == 0:
		return m.store.Decide(ctx, op, m.unwrap(layers), cost)
	case op == stint.OpTakeUpTo:
		return m.upTo(ctx, items, cost)
	}
	return m.together(ctx, op, items, cost)
}

// unwrap returns the layers as the server or memory knows them, when either
// knows them all.
func (m *modes) unwrap(layers []stint.Layer) []stint.Layer {
	out := append([]stint.Layer(nil), layers...)
	for i := range out {
		b := out[i].Bound.(*moded)
		if out[i].Bound = b.local; b.local == nil {
			out[i].Bound = b.whole
		}
	}
	return out
}
