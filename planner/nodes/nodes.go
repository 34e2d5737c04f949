// Package nodes plays several processes that hold a limit together: each
// operation goes to the next of them, as behind a load balancer that deals them
// out.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A Store is a [stint.Store] of several, of which each keeps its own. Decide,
// Reserve and Refund ask the next; Settle asks the one that reserved, Reset all.
// It may be used from one goroutine at a time.
type Store struct {
	stores []stint.Store
	part   func(stint.Limit) stint.Limit
	next   int
}

var _ stint.Store = (*Store)(nil)

// New returns a store of at least one node. Each holds what part makes of a
// limit; nil is the limit itself.
func New(stores []stint.Store, part func(stint.Limit) stint.Limit) *Store {
	return &Store{stores: stores, part: part}
}

// turn returns the node whose turn it is.
func (s *Store) turn() int {
	n := s.next
	s.next = (n + 1) % len(s.stores)
	return n
}

// bound is limits on all nodes.
type bound struct {
	store *Store
	each  []stint.Bound
}

// Bind implements [stint.Store].
func (s *Store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b := &bound{s, make([]stint.Bound, len(s.stores))}
	if s.part != nil {
		parts := make([]stint.Limit, len(limits))
		for i, l := range limits {
			parts[i] = s.part(l)
		}
		limits = parts
	}
	for i, one := range s.stores {
		var err error
		if b.each[i], err = one.Bind(name, limits...); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Limits implements [stint.Bound].
func (b *bound) Limits() []stint.Limit { return b.each[0].Limits() }

// Name implements [stint.Bound].
func (b *bound) Name() string { return b.each[0].Name() }

// Allow implements [stint.Bound].
func (b *bound) Allow(ctx context.Context, key string, cost int64) (bool, error) {
	d, err := b.Decide(ctx, meter.OpTake, key, cost)
	return d.Allowed, err
}

// Decide implements [stint.Bound].
func (b *bound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	return b.each[b.store.turn()].Decide(ctx, op, key, cost)
}

// at returns the layers as node n knows them.
func (s *Store) at(n int, layers []stint.Layer) ([]stint.Layer, error) {
	own := make([]stint.Layer, len(layers))
	for i, l := range layers {
		b, ok := l.Bound.(*bound)
		if !ok || b.store != s {
			return nil, fmt.Errorf("%w: layer %d is bound to another store", stint.ErrLayers, i)
		}
		own[i] = l
		own[i].Bound = b.each[n]
	}
	return own, nil
}

// Decide implements [stint.Store].
func (s *Store) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	n := s.turn()
	own, err := s.at(n, layers)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.stores[n].Decide(ctx, op, own, cost)
}

// Reserve implements [stint.Store]. The token says which node.
func (s *Store) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	n := s.turn()
	own, err := s.at(n, layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	d, id, err := s.stores[n].Reserve(ctx, own, cost, ttl)
	if id != "" {
		id = stint.ReservationID(strconv.Itoa(n)+" ") + id
	}
	return d, id, err
}

// Settle implements [stint.Store].
func (s *Store) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	node, of, ok := strings.Cut(string(id), " ")
	n, err := strconv.Atoi(node)
	if !ok || err != nil || n < 0 || n >= len(s.stores) {
		return stint.Decision{}, stint.ErrReservation
	}
	return s.stores[n].Settle(ctx, stint.ReservationID(of), cost)
}

// Refund implements [stint.Store].
func (s *Store) Refund(ctx context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	n := s.turn()
	own, err := s.at(n, layers)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.stores[n].Refund(ctx, own, cost)
}

// Reset implements [stint.Store].
func (s *Store) Reset(ctx context.Context, layers []stint.Layer) error {
	for n, one := range s.stores {
		own, err := s.at(n, layers)
		if err != nil {
			return err
		}
		if err := one.Reset(ctx, own); err != nil {
			return err
		}
	}
	return nil
}

// Close implements [stint.Store]: it closes all nodes.
func (s *Store) Close() error {
	var failed error
	for _, one := range s.stores {
		failed = errors.Join(failed, one.Close())
	}
	return failed
}
