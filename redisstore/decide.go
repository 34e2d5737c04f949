package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stint-dev/stint"
)

// bound implements [stint.Bound].
type bound struct {
	store  *Store
	name   string
	limits []*limit
}

// Limits implements [stint.Bound].
func (b *bound) Limits() []stint.Limit {
	out := make([]stint.Limit, len(b.limits))
	for i, l := range b.limits {
		out[i] = l.form.Load().limit
	}
	return out
}

// Name implements [stint.Bound].
func (b *bound) Name() string { return b.name }

// Allow implements [stint.Bound].
func (b *bound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, stint.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [stint.Bound].
func (b *bound) Decide(ctx context.Context, op stint.Op, key string, cost int64) (stint.Decision, error) {
	return b.store.Decide(ctx, op, []stint.Layer{{Bound: b, Key: key}}, cost)
}

// Decide implements [stint.Store].
func (s *Store) Decide(ctx context.Context, op stint.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if of, ok := s.modes.ofModes(layers); ok {
		return s.modes.Decide(ctx, op, of, cost)
	}
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	var few [4]part
	parts, err := s.request(few[:0], layers)
	if err != nil {
		return stint.Decision{}, err
	}
	groups := s.groups(parts)
	if groups == nil {
		d, err := s.decideParts(ctx, op, parts, cost)
		if !s.parted(err) {
			return d, err
		}
		groups = s.slotGroups(parts)
	}
	d, err := s.decideGroups(ctx, op, parts, groups, cost)
	if s.parted(err) {
		d, err = s.decideGroups(ctx, op, parts, s.slotGroups(parts), cost)
	}
	return d, err
}

// decideParts decides what one call reaches.
func (s *Store) decideParts(ctx context.Context, op stint.Op, parts []part, cost int64) (stint.Decision, error) {
	if op != stint.OpTakeUpTo && isQuick(parts) {
		return s.quick(ctx, op, parts, cost)
	}
	verb := map[stint.Op]string{stint.OpTake: "t", stint.OpPeek: "p", stint.OpTakeUpTo: "u"}[op]
	a := s.askLong(ctx, parts, nil, verb, number(cost))
	if a.err != nil {
		return stint.Decision{}, a.err
	}
	return a.join(parts, op != stint.OpPeek), nil
}

// A part is one limit of a request, on one key.
type part struct {
	form       *form
	begin, end string // of the key's names
	limit      *limit
	weight     int64
	at         int             // its place in the request
	answer     *stint.Decision // where its own goes, or nil
}

// request appends the layers, flattened.
func (s *Store) request(parts []part, layers []stint.Layer) ([]part, error) {
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	for i, layer := range layers {
		b, ok := layer.Bound.(*bound)
		switch {
		case !ok || b.store != s:
			return nil, fmt.Errorf("%w: layer %d is not bound to this store", stint.ErrLayers, i)
		case layer.Weight < 0:
			return nil, fmt.Errorf("%w: a weight of %d", stint.ErrCost, layer.Weight)
		case layer.Answers != nil && len(layer.Answers) < len(b.limits):
			return nil, fmt.Errorf("%w: room for %d answers of %d limits", stint.ErrLayers, len(layer.Answers), len(b.limits))
		}
		begin, end := s.names.place(layer.Key)
		for k, l := range b.limits {
			for j := range parts {
				if parts[j].limit == l && parts[j].begin == begin && parts[j].end == end {
					return nil, fmt.Errorf("%w: the same key under limit %q twice", stint.ErrLayers, b.name)
				}
			}
			p := part{form: l.form.Load(), begin: begin, end: end, limit: l, weight: max(layer.Weight, 1), at: len(parts)}
			if layer.Answers != nil {
				p.answer = &layer.Answers[k]
			}
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 || len(parts) > stint.MaxLayers {
		return nil, fmt.Errorf("%w: %d of them: from 1 to %d", stint.ErrLayers, len(parts), stint.MaxLayers)
	}
	return parts, s.bearable(entriesOf(parts))
}

// ask is askLong for a request of one group.
func (s *Store) ask(ctx context.Context, parts []part, more []string, verb string, head ...string) (answer, error) {
	a := s.askLong(ctx, parts, more, verb, head...)
	return a.answer, a.err
}

// askLong runs the script on the states of the parts and on more keys. Head is
// what follows the verb.
func (s *Store) askLong(ctx context.Context, parts []part, more []string, verb string, head ...string) asked {
	keys := make([]string, 0, len(parts)+len(more))
	for i := range parts {
		keys = append(keys, state(parts[i].begin, parts[i].end, parts[i].limit))
	}
	keys = append(keys, more...)
	shares := overflows(verb, head[0]) && s.flooded(&parts[0])
	if goesByCalendar(parts) {
		var cancel context.CancelFunc
		ctx, cancel = s.within(ctx)
		defer cancel()
	}
	for range 3 {
		args := append(make([]string, 0, 8+8*len(parts)), verb)
		args = append(args, head...)
		now := s.near()
		for i := range parts {
			args = append(args, number(parts[i].weight))
			args = parts[i].form.append(args, now)
		}
		reply, cells, err := s.evalLong(ctx, parts, keys, args, shares)
		if err != nil {
			return asked{err: err}
		}
		if stale, t := staleAt(reply); stale {
			s.ahead.Store(t - time.Now().UnixNano())
			continue
		}
		a := readAsked(reply, verb, len(parts))
		a.cells = cells
		if a.err == nil {
			s.spendLong(verb, parts, a.answer, shares)
			s.countCells(cells, a.denied())
		}
		return a
	}
	return asked{err: fmt.Errorf("%w: the server's clock moves by days", ErrNotExecuted)}
}

func goesByCalendar(parts []part) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return p.form.calendar != nil })
}

// near returns a time in ns that should be near the server's.
func (s *Store) near() int64 {
	if s.now != nil {
		return s.now()
	}
	return time.Now().UnixNano() + s.ahead.Load()
}
