package policy_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

// broken is a store that fails while down is set, and, but for peeks, decides and then loses its
// answer while loses is set. It counts what is asked of it.
type broken struct {
	stint.Store
	down, loses atomic.Bool
	asked       atomic.Int64
}

var errDown = errors.New("the store is down")

// newBroken returns a broken store whose clock stands still.
func newBroken() *broken {
	return &broken{Store: memstore.New(memstore.Options{Now: func() int64 { return 0 }})}
}

// debtor is a policy on a broken store whose clock goes on.
func debtor(t *testing.T, rules ...string) (*broken, *policy.Policy) {
	t.Helper()
	store := &broken{Store: memstore.New(memstore.Options{})}
	p := made.Policy(t, store, parse(t, rules...), policy.Options{})
	t.Cleanup(p.Close)
	return store, p
}

// recovered waits until what is owed has been posted.
func recovered(store *broken) {
	store.down.Store(false)
	store.loses.Store(false)
	time.Sleep(time.Second) // in the time of the synctest bubble
	synctest.Wait()
}

// before is asked first.
func (s *broken) before() error {
	s.asked.Add(1)
	if s.down.Load() {
		return errDown
	}
	return nil
}

// lost returns the error in place of an answer.
func (s *broken) lost() error {
	if s.loses.Load() {
		return fmt.Errorf("%w: reset", stint.ErrAmbiguous)
	}
	return nil
}

type brokenBound struct {
	stint.Bound
	s *broken
}

func (s *broken) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	b, err := s.Store.Bind(name, limits...)
	return &brokenBound{b, s}, err
}

func (b *brokenBound) Apart(i int) stint.Bound {
	return &brokenBound{b.Bound.(interface{ Apart(i int) stint.Bound }).Apart(i), b.s}
}

func (b *brokenBound) Decide(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	if err := b.s.before(); err != nil {
		return stint.Decision{}, err
	}
	return b.Bound.Decide(ctx, op, key, cost)
}

func (s *broken) inner(layers []stint.Layer) (all []stint.Layer) {
	for _, l := range layers {
		l.Bound = l.Bound.(*brokenBound).Bound
		all = append(all, l)
	}
	return all
}

func (s *broken) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if err := s.before(); err != nil {
		return stint.Decision{}, err
	}
	d, err := s.Store.Decide(ctx, op, s.inner(layers), cost)
	if lost := s.lost(); lost != nil && op != meter.OpPeek {
		return stint.Decision{}, lost
	}
	return d, err
}

func (s *broken) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	if err := s.before(); err != nil {
		return stint.Decision{}, "", err
	}
	d, id, err := s.Store.Reserve(ctx, s.inner(layers), cost, ttl)
	if lost := s.lost(); lost != nil {
		return stint.Decision{}, "", &stint.LostReservation{ID: id, Err: lost}
	}
	return d, id, err
}

func (s *broken) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if err := s.before(); err != nil {
		return stint.Decision{}, err
	}
	d, err := s.Store.Settle(ctx, id, cost)
	if lost := s.lost(); lost != nil {
		return stint.Decision{}, lost
	}
	return d, err
}

func (s *broken) Refund(ctx context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	s.asked.Add(1)
	return s.Store.Refund(ctx, s.inner(layers), cost)
}

func (s *broken) Reset(ctx context.Context, layers []stint.Layer) error {
	return s.Store.Reset(ctx, s.inner(layers))
}

// A flaky store has a room of its own, like a store that processes share, and fails when told.
// Without room it answers as one that is full of leases.
type flaky struct {
	*memstore.Store
	*inflight.Memory
	room        *inflight.Room
	fails, full atomic.Bool
}

var errGone = errors.New("down")

func newFlaky(t *testing.T) *flaky {
	f := &flaky{Store: memstore.New(memstore.Options{}), Memory: inflight.NewMemory()}
	f.room = inflight.NewRoom(f, 0)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func (f *flaky) InFlight() *inflight.Room { return f.room }

func (f *flaky) Acquire(ctx context.Context, holds []inflight.Hold) (bool, error) {
	if f.full.Load() {
		return false, inflight.ErrFull
	}
	if f.fails.Load() {
		return false, errGone
	}
	return f.Memory.Acquire(ctx, holds)
}

func (f *flaky) Look(ctx context.Context, holds []inflight.Hold) (bool, error) {
	if f.fails.Load() {
		return false, errGone
	}
	return f.Memory.Look(ctx, holds)
}

func (f *flaky) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	if f.fails.Load() {
		return stint.Decision{}, "", errGone
	}
	return f.Store.Reserve(ctx, layers, cost, ttl)
}
