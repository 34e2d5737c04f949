package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// shareToken begins the token of a reservation that has a part in memory: its
// token there and, behind a dot, that of the server.
const shareToken = "share-"

// Reserve implements [stint.Store]. The server decides, but for shares, whose
// part of a reservation this process alone can settle.
func (m *modes) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.Token, error) {
	parts, err := m.divide(layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	if len(parts.here) == 0 {
		return m.store.Reserve(ctx, parts.there, cost, ttl)
	}
	d, local, err := m.local.Load().Reserve(ctx, parts.here, cost, ttl)
	d.Denied = spread(d.Denied, parts.atHere)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	if len(parts.there) == 0 {
		return d, shareToken + local, nil
	}
	of, token, err := m.store.Reserve(ctx, parts.there, cost, ttl)
	if err != nil || !of.Allowed {
		_, _ = m.local.Load().Settle(context.Background(), local, 0) // it was reserved just now
		of.Denied = spread(of.Denied, parts.atThere)
		return of, "", err
	}
	d.Join(&of)
	return d, shareToken + local + "." + token, nil
}

// Settle implements [stint.Store].
func (m *modes) Settle(ctx context.Context, token stint.Token, cost int64) (stint.Decision, error) {
	defer m.settled.Add(1)
	rest, ok := strings.CutPrefix(string(token), shareToken)
	if !ok {
		return m.store.Settle(ctx, token, cost)
	}
	shares := m.local.Load()
	if shares == nil {
		return stint.Decision{}, stint.ErrReservation
	}
	local, there, both := strings.Cut(rest, ".")
	d, err := shares.Settle(ctx, stint.Token(local), cost)
	if err != nil || !both {
		return d, err
	}
	of, err := m.store.Settle(ctx, stint.Token(there), cost)
	d.Join(&of)
	return d, err
}

// Refund implements [stint.Store].
func (m *modes) Refund(ctx context.Context, layers []stint.Layer, cost int64) (d stint.Decision, err error) {
	parts, err := m.divide(layers)
	if err != nil {
		return d, err
	}
	if len(parts.there) > 0 {
		if d, err = m.store.Refund(ctx, parts.there, cost); err != nil {
			return d, err
		}
		m.forget(layers, (*single).renew)
	}
	if len(parts.here) > 0 {
		of, err := m.local.Load().Refund(ctx, parts.here, cost)
		if err != nil || len(parts.there) == 0 {
			return of, err
		}
		d.Join(&of)
	}
	return d, nil
}

// Reset implements [stint.Store].
func (m *modes) Reset(ctx context.Context, layers []stint.Layer) error {
	parts, err := m.divide(layers)
	if err != nil {
		return err
	}
	if len(parts.there) > 0 {
		m.forget(layers, (*single).drop)
		if err := m.store.Reset(ctx, parts.there); err != nil {
			return err
		}
		m.forget(layers, (*single).drop) // what came in meanwhile
	}
	if len(parts.here) > 0 {
		return m.local.Load().Reset(ctx, parts.here)
	}
	return nil
}

// forget tells each limit of the layers that are not shares about its key, and
// drops all denials that are known.
func (m *modes) forget(layers []stint.Layer, tell func(*single, string)) {
	m.settled.Add(1)
	for _, layer := range layers {
		for _, one := range layer.Bound.(*moded).all {
			if one.mode != Share {
				tell(one, layer.Key)
			}
		}
	}
}

// divided are the layers that memory holds and those that the server does, and
// where the limits of each stand in the request.
type divided struct {
	here, there     []stint.Layer
	atHere, atThere []int
}

func (m *modes) divide(layers []stint.Layer) (d divided, err error) {
	if m.store.closed.Load() {
		return d, stint.ErrClosed
	}
	if _, err := m.flatten(layers); err != nil {
		return d, err
	}
	at := 0
	for _, layer := range layers {
		b := layer.Bound.(*moded)
		if layer.Bound = b.local; b.local != nil {
			d.here = append(d.here, layer)
		} else {
			layer.Bound = b.whole
			d.there = append(d.there, layer)
		}
		for range b.all {
			if b.local != nil {
				d.atHere = append(d.atHere, at)
			} else {
				d.atThere = append(d.atThere, at)
			}
			at++
		}
	}
	return d, nil
}

// spread returns a mask of some limits as one of the whole request.
func spread(of stint.Mask, at []int) (out stint.Mask) {
	for i := range of.Layers() {
		out |= 1 << uint(at[i])
	}
	return out
}
