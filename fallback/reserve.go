package fallback

import (
	"context"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// Prefixes of the reservation IDs that the local store made, and of those that no store keeps
// because the mode is Open.
const (
	localPrefix = "local-"
	openID      = stint.ReservationID("open")
)

// Reserve implements [stint.Store]. What the local store reserves is settled there, by this process
// alone. The shared store is owed its cost once it is settled, or has expired.
func (s *Store) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	return s.take(ctx, layers, cost, ttl, func(ctx context.Context, store stint.Store, layers []stint.Layer) (stint.Decision, stint.ReservationID, error) {
		return store.Reserve(ctx, layers, cost, ttl)
	})
}

// TakeTurn implements [stint.TurnStore].
func (s *Store) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (stint.Decision, stint.ReservationID, error) {
	return s.take(ctx, layers, cost, ttl, func(ctx context.Context, store stint.Store, layers []stint.Layer) (stint.Decision, stint.ReservationID, error) {
		return TakeTurn(ctx, store, layers, cost, ttl, age)
	})
}

// TakeTurn takes a cost for a waiter, as [stint.TurnStore] does, and with a ttl above 0 reserves it.
// If the store does not know turns, TakeTurn peeks and then takes, and the turn is now.
func TakeTurn(ctx context.Context, store stint.Store, layers []stint.Layer, cost int64, ttl, age time.Duration) (d stint.Decision, id stint.ReservationID, err error) {
	if turns, ok := store.(stint.TurnStore); ok {
		return turns.TakeTurn(ctx, layers, cost, ttl, age)
	}
	if d, err = store.Decide(ctx, meter.OpPeek, layers, cost); err != nil || !d.Allowed || d.Delay > 0 {
		d.Allowed = false
		return d, "", err
	}
	if ttl > 0 {
		return store.Reserve(ctx, layers, cost, ttl)
	}
	d, err = store.Decide(ctx, meter.OpTake, layers, cost)
	return d, "", err
}

// take takes a cost from the shared store or in its place. With a ttl above 0 it reserves the cost.
func (s *Store) take(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration, by func(context.Context, stint.Store, []stint.Layer) (stint.Decision, stint.ReservationID, error)) (stint.Decision, stint.ReservationID, error) {
	main, local, err := s.split(layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	d, id := stint.Decision{}, stint.ReservationID("")
	if err = unsettled(layers); err == nil {
		d, id, err = by(ctx, s.main, main)
	}
	if err == nil {
		if s.failover.Answered(); id == "" {
			s.warm(layers, d.Taken)
		} else {
			s.failover.Reserve(id, cost, ttl, s.reservedOf(layers))
		}
		return d, id, nil
	}
	s.failover.Lost(err, func() []Reserved { return s.reservedOf(layers) })
	if !s.fails(ctx, err) {
		return d, id, err
	}
	why := err
	d, err = s.instead(layers, func() (stint.Decision, error) {
		d, t, err := by(context.WithoutCancel(ctx), s.local, local)
		if t != "" {
			id = localPrefix + t
			s.failover.ReserveLocal(why, t, cost, ttl, s.reservedOf(layers))
		}
		return d, err
	})
	if id == "" {
		s.owe(why, layers, s.charged(meter.OpTake, &d, cost, err), d.Allowed)
	}
	if s.mode == Open && ttl > 0 {
		id = openID
	}
	return d, id, err
}

// reservedOf returns what the layers reserve.
func (s *Store) reservedOf(layers []stint.Layer) []Reserved {
	of := make([]Reserved, 0, len(layers))
	for _, l := range layers {
		if pair := l.Bound.(*bound).pair; s.mode == Local || pair.bans {
			of = append(of, Reserved{pair, l.Key, l.Weight, l.Excuses, s.mode != Local})
		}
	}
	return of
}

// unsettled returns the error of the first layer whose key is [Pair.Unsettled].
func unsettled(layers []stint.Layer) error {
	for _, l := range layers {
		if err := l.Bound.(*bound).pair.Unsettled(l.Key); err != nil {
			return err
		}
	}
	return nil
}

// Settle implements [stint.Store]. A reservation of the shared store is settled once that answers:
// see [Failover.Settle].
func (s *Store) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	main, local := inStores(id)
	switch {
	case local != "":
		return s.failover.SettleLocal(ctx, local, cost)
	case id == openID:
		return stint.Decision{Allowed: true, Tightest: -1}, nil
	}
	return s.failover.Settle(ctx, main, cost)
}

// inStores returns the ID that a reservation has in the store that made it; the other one, or both,
// are "".
func inStores(id stint.ReservationID) (main, local stint.ReservationID) {
	if own, ok := strings.CutPrefix(string(id), localPrefix); ok {
		return "", stint.ReservationID(own)
	}
	if id == openID {
		return "", ""
	}
	return id, ""
}
