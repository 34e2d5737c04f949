package redisstore

import (
	"context"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// TakeTurn implements [stint.TurnStore]. For layers in several slots of a cluster, or in a
// mode, it peeks and then takes, and the turn is now. It shares no call with other requests.
func (s *Store) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (d stint.Decision, id stint.ReservationID, err error) {
	if cost < 0 {
		return d, "", stint.ErrCost
	}
	_, inMode := s.modes.ofModes(layers)
	var parts []part
	if !inMode {
		if parts, err = s.request(nil, layers); err != nil {
			return d, "", err
		}
	}
	r := reserving{cost: cost, ttl: ttl, age: max(age, 0)}
	switch {
	case inMode || s.slotGroups(parts) != nil:
		if d, err = s.Decide(ctx, meter.OpPeek, layers, cost); err != nil || !d.Allowed || d.Delay > 0 {
			d.Allowed = false
			return d, "", err
		}
		if ttl > 0 {
			return s.Reserve(ctx, layers, cost, ttl)
		}
		d, err = s.Decide(ctx, meter.OpTake, layers, cost)
		return d, "", err
	case ttl > 0:
		if err := s.ofLayers(parts, layers); err != nil {
			return d, "", err
		}
		return s.reserveParts(ctx, parts, r)
	}
	a := s.longPath(ctx, parts, nil, "w", r.asked())
	if a.err != nil {
		return d, "", a.err
	}
	return a.join(parts, true), "", nil
}
