package fallback

import (
	"context"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// Tokens of reservations that the local store made, and of those that no store
// keeps because the mode is Open.
const (
	localPrefix = "local-"
	openID      = stint.ReservationID("open")
)

// Reserve implements [stint.Store]. What the local store reserves is settled
// there, by this process alone; what was reserved is owed, and what it is settled at
// above that.
func (s *Store) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	main, local, err := s.split(layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	d, id, err := s.main.Reserve(ctx, main, cost, ttl)
	if err == nil {
		s.failover.Answered()
		s.warm(layers, d.Taken)
		s.failover.Reserve(id, cost, ttl, reservedOf(layers))
		return d, id, nil
	}
	if !s.fails(ctx, err) {
		return d, id, err
	}
	why := err
	d, err = s.instead(func() (stint.Decision, error) {
		d, t, err := s.local.Reserve(context.WithoutCancel(ctx), local, cost, ttl)
		if t != "" {
			id = localPrefix + t
			s.failover.Reserve(t, cost, ttl, reservedOf(layers))
		}
		return d, err
	})
	s.owe(why, layers, s.charged(meter.OpTake, &d, cost, err), d.Allowed)
	if s.mode == Open {
		id = openID
	}
	return d, id, err
}

// reservedOf returns what layers reserve.
func reservedOf(layers []stint.Layer) []Reserved {
	of := make([]Reserved, len(layers))
	for i, l := range layers {
		of[i] = Reserved{l.Bound.(*bound).pair, l.Key, l.Weight}
	}
	return of
}

// Settle implements [stint.Store]. A reservation of the shared store is settled there
// once that answers: see [Failover.Settle].
func (s *Store) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if id == openID {
		return stint.Decision{Allowed: true, Tightest: -1}, nil
	}
	if local, ok := strings.CutPrefix(string(id), localPrefix); ok {
		return s.failover.SettleLocal(ctx, stint.ReservationID(local), cost)
	}
	return s.failover.Settle(ctx, id, cost)
}
