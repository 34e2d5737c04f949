package redisstore

import (
	"context"

	"github.com/stint-dev/stint"
)

// upTo takes the most that passes: here it can only be shares that bound it.
func (m *modes) upTo(ctx context.Context, items []item, cost int64) (stint.Decision, error) {
	most := cost
	for i := range items {
		if it := &items[i]; it.mode == Share {
			d, err := it.share.Decide(ctx, stint.OpPeek, it.key, 1)
			if err != nil {
				return d, err
			}
			most = min(most, d.Remaining/it.weight)
		}
	}
	return m.together(ctx, stint.OpTakeUpTo, items, max(most, min(cost, 1)))
}

// together decides a request with several layers: those that decide here first,
// the others with one call; when not all let it pass, what was taken here is put
// back.
func (m *modes) together(ctx context.Context, op stint.Op, items []item, cost int64) (stint.Decision, error) {
	ctx, cancel := m.store.within(ctx)
	defer cancel()
	denied := false
	for i := range items {
		it := &items[i]
		if !it.here(op) {
			continue
		}
		if err := it.try(ctx, op, cost); err != nil {
			putBack(items, 0)
			return stint.Decision{}, err
		}
		denied = denied || it.told && !it.own.Allowed
		if denied && op != stint.OpPeek {
			break
		}
	}
	taken := cost
	if !denied || op == stint.OpPeek {
		var err error
		if taken, err = m.rest(ctx, op, items, cost); err != nil {
			putBack(items, 0)
			return stint.Decision{}, err
		}
	}
	return join(op, items, taken), nil
}

// try decides one item here, if it can be.
func (it *item) try(ctx context.Context, op stint.Op, cost int64) error {
	units, fits := it.units(cost)
	if !fits {
		it.told = true
		it.own = stint.Decision{Limit: it.limit.Capacity(), Denied: 1, RetryAfter: stint.Never}
		return nil
	}
	if op == stint.OpPeek || units == 0 {
		d, err := it.share.Decide(ctx, stint.OpPeek, it.key, units)
		it.own, it.told = d, true
		return err
	}
	it.held.kept = true
	result, d, err := it.take(ctx, stint.OpTake, it.key, units, &it.held)
	if result == passed && it.lease != nil {
		d = it.lease.describe(it.key, units)
	}
	it.own, it.told = d, result != byServer
	if result != passed {
		it.held = hold{}
	}
	return err
}

// rest asks the server for the items that have not answered, unless it is known
// to deny, and returns what the request takes: 0 if it is denied.
func (m *modes) rest(ctx context.Context, op stint.Op, items []item, cost int64) (int64, error) {
	of := make([]*item, 0, len(items))
	for i := range items {
		if it := &items[i]; !it.told {
			of = append(of, it)
		}
	}
	if len(of) == 0 {
		return cost, nil
	}
	request := requestOf(of)
	if op == stint.OpTake && m.recall(request, of, cost) {
		return 0, nil
	}
	layers, answers := make([]stint.Layer, len(of)), make([]stint.Decision, len(of))
	for i, it := range of {
		layers[i] = stint.Layer{Bound: it.strict, Key: it.key, Weight: it.weight, Answers: answers[i : i+1]}
	}
	before := m.returns.now(ownOf(of))
	d, err := m.store.Decide(ctx, op, layers, cost)
	if err != nil {
		return 0, err
	}
	for i, it := range of {
		it.own, it.told = answers[i], true
	}
	if op == stint.OpTakeUpTo {
		cost = d.Taken
	}
	if op == stint.OpTake || d.Allowed {
		m.remember(request, of, cost, before, &d)
	}
	return cost, nil
}

// putBack ends every hold: taken is what the request took, 0 if nothing.
func putBack(items []item, taken int64) {
	for i := range items {
		it := &items[i]
		if it.held.units == 0 {
			continue
		}
		if it.mode == Share { // which alone may have held more than was taken
			units, _ := it.units(taken)
			_, _ = it.local.Load().Settle(context.Background(), it.held.token, units)
		} else {
			it.settle(it.key, it.held, taken > 0)
		}
		it.held = hold{}
	}
}

// join makes one decision of the items' own, and tells each its own.
func join(op stint.Op, items []item, taken int64) (d stint.Decision) {
	allowed, first := true, true
	for i := range items {
		if it := &items[i]; it.told && !it.own.Allowed {
			d.Denied |= 1 << uint(i)
			allowed = false
		}
	}
	if !allowed || op == stint.OpPeek {
		taken = 0
	}
	putBack(items, taken)
	denied := d.Denied
	for i := range items {
		it := &items[i]
		if !it.told {
			it.own = stint.Decision{Allowed: true, Limit: it.limit.Capacity(), Remaining: it.limit.Capacity()}
		}
		it.own.Taken, _ = it.units(taken)
		if it.answer != nil {
			*it.answer = it.own
		}
		of := it.own
		of.Limit /= it.weight
		of.Remaining /= it.weight
		switch {
		case !it.told: // it was spared
		case first:
			d, first = of, false
			d.Tightest = i
		default:
			of.Tightest = i
			d.Join(&of)
		}
	}
	d.Allowed, d.Denied, d.Taken = allowed, denied, taken
	return d
}
