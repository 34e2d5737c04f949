package memstore

import (
	"context"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/meter"
)

// mostAge is how long ago the turn of a waiter may have been.
const mostAge = time.Second

// TakeTurn implements [stint.TurnStore].
func (s *Store) TakeTurn(_ context.Context, layers []stint.Layer, cost int64, ttl, age time.Duration) (stint.Decision, stint.ReservationID, error) {
	var few [fewParts]part
	parts, err := s.parts(few[:0], layers)
	if err != nil {
		return stint.Decision{}, "", err
	}
	if ttl > 0 {
		return s.reserve(parts, layers, cost, ttl, &waiting{age: age})
	}
	d, err := s.decide(meter.OpTake, parts, cost, nil, &waiting{age: age})
	return d, "", err
}

// TakeNow takes a cost from a key that has a slot, if it passes now without a delay, and
// reports whether it did. A [stint.Limiter] tries it before a caller waits.
func (b *bound) TakeNow(key string, cost int64) bool {
	_, ok := b.fastPath(b.store.seed.hash(key), cost, 1, taking{waits: true}, nil)
	return ok
}

// waiting marks a request that waits for its turn. A denial of it changes nothing. When it
// passes, it is charged as of its turn, so that a late waiter loses no time.
type waiting struct {
	age  time.Duration // how long ago the turn may have been
	lost []uint128.Int // for each part, by how much a charge now would be too late; nil for nothing
}

// delays reports whether a leaky_queue would have the request start later.
func (w *waiting) delays(s *Store, parts []part, now, cost int64) (denied stint.LimitSet) {
	for i := range parts {
		p := &parts[i]
		if units, fits := satmath.Mul(cost, p.weight); fits && p.limit.meter.Algorithm().Queues() && p.delay(s, now, units) > 0 {
			denied |= 1 << uint(i)
		}
	}
	return denied
}

// passes works out the turn of a request that passes: the moment from which all its limits
// let it pass, at most w.age ago. If one of them does not know that moment, the turn is now.
func (w *waiting) passes(s *Store, parts []part, now, cost int64) {
	turn := now - int64(min(max(w.age, 0), mostAge))
	for i := range parts {
		p := &parts[i]
		state, old := p.look(s, now)
		units, _ := satmath.Mul(cost, p.weight)
		if old != nil || p.limit.ban != nil || p.table().cells != nil || !p.limit.meter.Turns(state) {
			return
		}
		if len(parts) > 1 {
			turn = max(turn, p.limit.meter.Since(state, units))
		}
	}
	w.lost = make([]uint128.Int, len(parts))
	for i := range parts {
		state, _ := parts[i].look(s, now)
		w.lost[i] = parts[i].limit.meter.Lost(state, now, turn)
	}
}

// recover dates the charge of part i back to the turn.
func (w *waiting) recover(s *Store, p *part, now int64, i int) {
	if w.lost != nil {
		state, _ := p.look(s, now)
		p.limit.meter.Recover(state, w.lost[i])
	}
}
