package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// A farStore is a memstore to which calls take up to 2 ms each way. Like a store that processes
// share, it does not say when it has room.
type farStore struct {
	*memstore.Store
	mu     sync.Mutex
	random *rand.Rand
}

func newFarStore(seed uint64) *farStore {
	return &farStore{Store: memstore.New(memstore.Options{}), random: rand.New(rand.NewPCG(seed, 4))}
}

// Watch is not the method that waiters look for.
func (s *farStore) Watch() {}

func (s *farStore) way(ctx context.Context) error {
	s.mu.Lock()
	d := time.Duration(1 + s.random.Int64N(int64(2*ms)))
	s.mu.Unlock()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *farStore) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	if err := s.way(ctx); err != nil {
		return stint.Decision{}, err
	}
	d, err := s.Store.Decide(ctx, op, layers, cost)
	return d, errors.Join(err, s.way(ctx))
}

func (s *farStore) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (stint.Decision, stint.ReservationID, error) {
	if err := s.way(ctx); err != nil {
		return stint.Decision{}, "", err
	}
	d, id, err := s.Store.TakeTurn(ctx, layers, cost, ttl, age)
	return d, id, errors.Join(err, s.way(ctx))
}

func (s *farStore) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	if err := s.way(ctx); err != nil {
		return stint.Decision{}, "", err
	}
	d, id, err := s.Store.Reserve(ctx, layers, cost, ttl)
	return d, id, errors.Join(err, s.way(ctx))
}

// drain takes what passes at one moment, or under a queue what starts then.
func drain(t *testing.T, l *stint.Limiter) {
	t.Helper()
	cost := l.Limits()[0].Capacity()
	if l.Limits()[0].Algorithm().Queues() {
		cost = 1
	}
	must(t, l, cost)
}

// TestWaitCrowd has sixty come at once to a store that is far away, with 1.6 s each. Those who
// can pass do. The others hear at once that they cannot, but for some under a window, where
// those ahead count in whole windows.
func TestWaitCrowd(t *testing.T) {
	for _, c := range []struct {
		limit        string
		passes, late int64
	}{
		{"4/s burst 1", 6, 0},
		{"4/s burst 10", 6, 0},
		{"40/s burst 100", 60, 0},
		{"4/s burst 1 ban 1s", 6, 0},
		{"4/s leaky_queue burst 3", 6, 0},
		{"4/s leaky_queue burst 50", 6, 0},
		{"4/s fixed_window", 4, 3},
		{"4/s sliding_log", 4, 3},
	} {
		t.Run(c.limit, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					store := newFarStore(seed)
					defer store.Close()
					l := limiterOn(t, store, c.limit)
					drain(t, l)
					var passed, late atomic.Int64
					var all sync.WaitGroup
					for range 60 {
						all.Go(func() {
							ctx, stop := context.WithTimeout(bg, 1600*ms)
							defer stop()
							began := time.Now()
							var early *stint.WaitError
							switch err := l.Wait(ctx, "k", 1); {
							case err == nil:
								passed.Add(1)
							case !errors.As(err, &early) || time.Since(began) > 400*ms:
								late.Add(1)
							}
						})
					}
					all.Wait()
					if passed.Load() != c.passes || late.Load() > c.late {
						t.Errorf("seed %d: %d passed, %d failed late; want %d and at most %d", seed, passed.Load(), late.Load(), c.passes, c.late)
					}
					empty(t, l)
				})
			}
		})
	}
}

// TestWaitCertainFarAway is TestWaitDeadlineIsCertain for a store that is far away, and for
// arrivals that come while others pass.
func TestWaitCertainFarAway(t *testing.T) {
	for _, limit := range []string{"4/s burst 1", "4/s burst 4", "4/s leaky_queue burst 20", "4/s sliding_log", "4/s burst 1; 8/s fixed_window"} {
		t.Run(limit, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					store := newFarStore(seed)
					defer store.Close()
					l := limiterOn(t, store, split(limit)...)
					random := rand.New(rand.NewPCG(seed, 5))
					arrivals, took := make([]time.Duration, 12), make([]time.Duration, 12)
					for i := range arrivals[1:] { // the first is in line by then
						arrivals[i+1] = 10*ms + time.Duration(random.Int64N(int64(time.Second)))
					}
					for round := range 2 {
						time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(2 * time.Hour)))
						drain(t, l)
						var all sync.WaitGroup
						for i, arrival := range arrivals {
							all.Go(func() {
								time.Sleep(arrival)
								ctx, stop := context.WithCancel(bg)
								if round == 1 {
									ctx, stop = context.WithTimeout(bg, took[i]+100*ms) // calls take longer or shorter
								}
								defer stop()
								began := time.Now()
								if err := l.Wait(ctx, "k", 1); err != nil {
									t.Errorf("seed %d: the one that comes at %v, with %v: %v", seed, arrival, took[i], err)
								}
								took[i] = time.Since(began)
							})
						}
						all.Wait()
					}
					empty(t, l)
				})
			}
		})
	}
}
