package memstore

import (
	"context"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A singleStore is a [Single] as a store of one key, for the limiter that waits
// and reserves.
type singleStore struct{ *Single }

var _ stint.Store = singleStore{}

// layer is the key in the store, while the state is there.
func (s singleStore) layer() []stint.Layer { return []stint.Layer{{Bound: s.bound}} }

// Bind implements [stint.Store].
func (s singleStore) Bind(string, ...stint.Limit) (stint.Bound, error) { return singleBound{s}, nil }

// Decide implements [stint.Store].
func (s singleStore) Decide(_ context.Context, op meter.Op, _ []stint.Layer, cost int64) (stint.Decision, error) {
	return s.decideOrTake(op, cost)
}

func (s singleStore) decideOrTake(op meter.Op, cost int64) (stint.Decision, error) {
	if op == meter.OpTake {
		return s.Take(cost)
	}
	return s.decide(op, cost)
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
func (s singleStore) Reserve(ctx context.Context, _ []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	f := s.enter()
	defer s.leave()
	if f.verdict != byLimit && cost >= 0 && ttl > 0 {
		return f.verdict.answer(cost), "", nil
	}
	return s.store.Reserve(ctx, s.layer(), cost, ttl)
}

// Settle implements [stint.Store].
func (s singleStore) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	s.enter()
	defer s.leave()
	return s.store.Settle(ctx, id, cost)
}

// Refund implements [stint.Store].
func (s singleStore) Refund(ctx context.Context, _ []stint.Layer, cost int64) (stint.Decision, error) {
	s.enter()
	defer s.leave()
	return s.store.Refund(ctx, s.layer(), cost)
}

// Reset implements [stint.Store].
func (s singleStore) Reset(ctx context.Context, _ []stint.Layer) error {
	s.enter()
	defer s.leave()
	return s.store.Reset(ctx, s.layer())
}

// Close implements [stint.Store].
func (s singleStore) Close() error { return nil }

// Watch calls wake whenever something else than time may have made room.
func (s singleStore) Watch(_ stint.Bound, _ string, wake func()) (stop func()) {
	s.enter()
	defer s.leave()
	return s.store.Watch(s.bound, "", wake)
}

// A singleBound is the limit of a Single, as bound in its store.
type singleBound struct{ s singleStore }

func (b singleBound) Decide(_ context.Context, op meter.Op, _ string, cost int64) (stint.Decision, error) {
	return b.s.decideOrTake(op, cost)
}

func (b singleBound) Allow(_ context.Context, _ string, cost int64) (bool, error) {
	d, err := b.s.Take(cost)
	return d.Allowed, err
}

func (b singleBound) Limits() []stint.Limit { return []stint.Limit{b.s.Limit()} }
func (b singleBound) Name() string          { return "single" }

// Unchanged reports whether limits are what Limits returns.
func (b singleBound) Unchanged(limits []stint.Limit) bool {
	return len(limits) == 1 && limits[0] == b.s.Limit()
}
