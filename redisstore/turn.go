package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// TakeTurn implements [stint.TurnStore]. For layers in several slots of a cluster, or in a
// mode other than strict, it peeks and then takes, and the turn is now. It shares no call with other requests.
func (s *Store) TakeTurn(ctx context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (d stint.Decision, id stint.ReservationID, err error) {
	if cost < 0 {
		return d, "", stint.ErrCost
	}
	layers, inMode := s.strictly(layers)
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
		return s.reserveTurn(ctx, parts, layers, r)
	}
	a := s.longPath(ctx, parts, nil, "w", r.asked())
	if a.err != nil {
		return d, "", a.err
	}
	return a.join(parts, true), "", nil
}

// reserveTurn is TakeTurn of a reservation. What a leaky_queue would delay is denied: since the script
// reserves with a delay, too, a peek comes first, and what another request has delayed meanwhile goes back.
func (s *Store) reserveTurn(ctx context.Context, parts []part, layers []stint.Layer, r reserving) (d stint.Decision, id stint.ReservationID, err error) {
	queues := func(l stint.Limit) bool { return l.Algorithm().Queues() }
	if slices.ContainsFunc(layers, func(l stint.Layer) bool { return slices.ContainsFunc(l.Bound.Limits(), queues) }) {
		if d, err = s.Decide(ctx, meter.OpPeek, layers, r.cost); err != nil || !d.Allowed || d.Delay > 0 {
			d.Allowed = false
			return d, "", err
		}
	}
	if err := s.ofLayers(parts, layers); err != nil {
		return d, "", err
	}
	if d, id, err = s.reserveParts(ctx, parts, r); err != nil || d.Delay == 0 {
		return d, id, err
	}
	d.Allowed = false
	_, err = s.Settle(ctx, id, 0)
	return d, "", err
}

// strictly returns the layers with the bounds by which the server decides them. inMode reports that a
// mode decides some of them elsewhere.
func (s *Store) strictly(layers []stint.Layer) (onServer []stint.Layer, inMode bool) {
	elsewhere := func(o *boundLimit) bool { return o.lease != nil || o.async != nil }
	onServer = slices.Clone(layers)
	for i := range onServer {
		if b, ok := onServer[i].Bound.(*modeBound); ok {
			if b.onServer == nil || slices.ContainsFunc(b.all, elsewhere) {
				return layers, true
			}
			onServer[i].Bound = b.onServer
		}
	}
	return onServer, false
}
