package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// sharePrefix begins the ID of a reservation with limits in mode Share: then follow its ID
// in memory, and after dots a mask in hex of which limits these are, and the server's ID for
// the others.
const sharePrefix = "share-"

// Reserve implements [stint.Store]. The server decides, except in mode Share: only this
// process can settle a reservation with limits in that mode.
func (m *modes) Reserve(ctx context.Context, layers []stint.Layer, cost int64, ttl time.Duration) (stint.Decision, stint.ReservationID, error) {
	parts, err := m.divide(layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	if len(parts.here) == 0 {
		return m.store.Reserve(ctx, parts.there, cost, ttl)
	}
	d, local, err := m.local.Load().Reserve(ctx, parts.here, cost, ttl)
	if err != nil || !d.Allowed {
		return parts.atHere.of(d), "", err
	}
	if len(parts.there) == 0 {
		return d, sharePrefix + local, nil
	}
	of, id, err := m.store.Reserve(ctx, parts.there, cost, ttl)
	if err != nil || !of.Allowed {
		_, _ = m.local.Load().Settle(context.Background(), local, 0) // it was reserved just now
		return parts.atThere.of(of), "", err
	}
	places := strconv.FormatUint(uint64(parts.atHere), 16)
	return parts.join(d, of), sharePrefix + local + "." + stint.ReservationID(places) + "." + id, nil
}

// Settle implements [stint.Store].
func (m *modes) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	local, there, at, err := cutShare(id)
	if err != nil {
		return stint.Decision{}, err
	}
	if local == "" {
		return m.store.Settle(ctx, there, cost)
	}
	shares := m.local.Load()
	if shares == nil {
		return stint.Decision{}, stint.ErrReservation
	}
	d, err := shares.Settle(ctx, local, cost)
	if err != nil || there == "" {
		return d, err
	}
	of, err := m.store.Settle(ctx, there, cost)
	if err != nil {
		return d, err
	}
	parts := divided{atHere: at, atThere: ^at}
	return parts.join(d, of), nil
}

// cutShare returns what an ID names: a reservation in memory, of the limits at these places,
// and one of the server. One of the two may be "".
func cutShare(id stint.ReservationID) (local, there stint.ReservationID, at placed, err error) {
	own, ok := strings.CutPrefix(string(id), sharePrefix)
	if !ok {
		return "", id, 0, nil
	}
	own, rest, both := strings.Cut(own, ".")
	places, other, _ := strings.Cut(rest, ".")
	mask, err := strconv.ParseUint(places, 16, 64)
	if both && err != nil {
		return "", "", 0, stint.ErrReservation
	}
	return stint.ReservationID(own), stint.ReservationID(other), placed(mask), nil
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
		m.forget(layers, (*boundLimit).renew)
	}
	if len(parts.here) > 0 {
		of, err := m.local.Load().Refund(ctx, parts.here, cost)
		if err != nil || len(parts.there) == 0 {
			return of, err
		}
		d = parts.join(of, d)
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
		m.forget(layers, (*boundLimit).drop)
		if err := m.store.Reset(ctx, parts.there); err != nil {
			return err
		}
		m.forget(layers, (*boundLimit).drop) // again, for what came in meanwhile
	}
	if len(parts.here) > 0 {
		return m.local.Load().Reset(ctx, parts.here)
	}
	return nil
}

// Block implements [stint.BlockStore]. Limits with a ban are decided by the server or are shares.
func (m *modes) Block(ctx context.Context, layers []stint.Layer, d time.Duration) error {
	parts, err := m.divide(layers)
	if err == nil && len(parts.there) > 0 {
		err = m.store.Block(ctx, parts.there, d)
	}
	if err == nil && len(parts.here) > 0 {
		err = m.local.Load().Block(ctx, parts.here, d)
	}
	return err
}

// forget calls tell with each limit of the layers and its key, except shares.
func (m *modes) forget(layers []stint.Layer, tell func(*boundLimit, string)) {
	for _, layer := range layers {
		for _, one := range layer.Bound.(*modeBound).all {
			if one.mode != Share {
				tell(one, layer.Key)
			}
		}
	}
}

// divided has the layers of a request that memory holds (here) and those that the server
// holds (there), and the indexes of their limits in the request.
type divided struct {
	here, there     []stint.Layer
	atHere, atThere placed
}

// join makes one decision of memory's and the server's.
func (p *divided) join(here, there stint.Decision) stint.Decision {
	d, of := p.atHere.of(here), p.atThere.of(there)
	d.Join(&of)
	return d
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
		b := layer.Bound.(*modeBound)
		local, there, _, err := cutShare(layer.Raises)
		if err != nil {
			return d, err
		}
		if b.local != nil {
			layer.Bound, layer.Raises = b.local, local
			d.here = append(d.here, layer)
		} else {
			layer.Bound, layer.Raises = b.onServer, there
			d.there = append(d.there, layer)
		}
		for range b.all {
			if b.local != nil {
				d.atHere |= 1 << at
			} else {
				d.atThere |= 1 << at
			}
			at++
		}
	}
	return d, nil
}

// placed is the set of indexes that some limits have in the request, in their order.
type placed stint.LimitSet

// of converts the indexes in a decision of these limits to indexes in the request.
func (p placed) of(d stint.Decision) stint.Decision {
	denied, tightest := d.Denied, d.Tightest
	d.Denied = 0
	i := 0
	for at := range stint.LimitSet(p).Limits() {
		if denied.Has(i) {
			d.Denied |= 1 << uint(at)
		}
		if i == tightest {
			d.Tightest = at
		}
		i++
	}
	return d
}
