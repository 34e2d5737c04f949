package memstore

import (
	"context"
	"errors"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A singleStore is a [Single] as a store of one key, so that a [stint.Limiter] can wait on it and
// reserve from it.
type singleStore struct{ *Single }

var _ stint.Store = singleStore{}

// own returns the request's layer with the bound of the store that the state is in.
func (s singleStore) own(layers []stint.Layer) []stint.Layer {
	one := layers[0]
	one.Bound = s.bound
	return []stint.Layer{one}
}

// Bind implements [stint.Store].
func (s singleStore) Bind(string, ...stint.Limit) (stint.Bound, error) { return singleBound{s}, nil }

// Decide implements [stint.Store].
func (s singleStore) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	f := s.enter()
	defer s.leave()
	if f.verdict != byLimit && cost >= 0 {
		return f.verdict.answer(cost), nil
	}
	return s.store.Decide(ctx, op, s.own(layers), cost)
}

// TakeTurn implements [stint.TurnStore].
func (s singleStore) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (stint.Decision, stint.ReservationID, error) {
	f := s.enter()
	defer s.leave()
	if f.verdict != byLimit && cost >= 0 {
		return f.verdict.answer(cost), "", nil
	}
	return s.store.TakeTurn(ctx, s.own(layers), cost, ttl, age)
}

// decide answers op by the store.
func (s *Single) decide(op meter.Op, cost int64) (stint.Decision, error) {
	if cost < 0 {
		return stint.Decision{}, stint.ErrCost
	}
	f := s.enter()
	defer s.leave()
	if f.verdict != byLimit {
		return f.verdict.answer(cost), nil
	}
	return s.bound.Decide(context.Background(), op, "", cost)
}

// Reserve implements [stint.Store].
func (s singleStore) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	f := s.enter()
	defer s.leave()
	if f.verdict != byLimit && cost >= 0 && ttl > 0 {
		return f.verdict.answer(cost), "", nil
	}
	return s.store.Reserve(ctx, s.own(layers), cost, ttl)
}

// Settle implements [stint.Store].
func (s singleStore) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	s.enter()
	defer s.leave()
	return s.store.Settle(ctx, id, cost)
}

// Refund implements [stint.Store].
func (s singleStore) Refund(ctx context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	s.enter()
	defer s.leave()
	return s.store.Refund(ctx, s.own(layers), cost)
}

// Reset implements [stint.Store].
func (s singleStore) Reset(ctx context.Context, layers []stint.Layer) error {
	s.enter()
	defer s.leave()
	return s.store.Reset(ctx, s.own(layers))
}

// Close implements [stint.Store].
func (s singleStore) Close() error { return nil }

// Watch implements the watching of a [stint.Limiter]; see [Store.Watch].
func (s singleStore) Watch(_ stint.Bound, _ string, wake func()) (stop func()) {
	s.enter()
	defer s.leave()
	return s.store.Watch(s.bound, "", wake)
}

// A singleBound is the limit of a Single, as bound in its store.
type singleBound struct{ s singleStore }

func (b singleBound) Decide(_ context.Context, op meter.Op, _ string, cost int64) (stint.Decision, error) {
	if op == meter.OpTake {
		return b.s.Take(cost)
	}
	return b.s.decide(op, cost)
}

func (b singleBound) Allow(_ context.Context, _ string, cost int64) (bool, error) {
	d, err := b.s.Take(cost)
	return d.Allowed, err
}

// Divert makes Allow, Take and Peek ask another Bound while callers wait; see bound.Divert.
func (b singleBound) Divert(to stint.Bound) {
	s := b.s.Single
	if to == nil {
		s.divert.Store(nil)
	} else {
		s.divert.Store(&to)
	}
	s.redirect()
}

func (b singleBound) Limits() []stint.Limit { return []stint.Limit{b.s.Limit()} }
func (b singleBound) Name() string          { return "single" }

// Unchanged reports whether limits are what Limits returns.
func (b singleBound) Unchanged(limits []stint.Limit) bool {
	return len(limits) == 1 && limits[0] == b.s.Limit()
}

// Change puts another limit in force; see [Single.SetLimit].
func (b singleBound) Change(limits ...stint.Limit) error {
	if len(limits) != 1 {
		return errors.New("memstore: a Single has one limit")
	}
	f, err := newSingleTerms(limits[0])
	if err != nil {
		return err
	}
	b.s.enter()
	defer b.s.leave()
	if err = b.s.bound.Change(limits[0]); err == nil {
		b.s.enforce(f)
	}
	return err
}
