package model

import (
	"fmt"
	"math/big"
	"slices"
)

// reservation is a charge whose actual cost is not known yet.
type reservation struct {
	layers   []Layer
	receipts []receipt // one for each layer
	states   []state   // that they are on
	cost     int64
	made     *big.Int
	expires  *big.Int // from this instant on it stands as charged
	dead     bool     // one of its keys was reset
	settled  *Answer  // what the first settle answered
}

// Reserve is Take with an id by which the actual cost can be settled within ttl
// nanoseconds. Ids count from 1; a denied one has id 0.
func (m *Model) Reserve(t int64, layers []Layer, cost, ttl int64) (Answer, int) {
	now, parts := m.begin(t, layers, cost)
	a, receipts := m.take(now, parts, cost)
	if !a.Allowed {
		return a, 0
	}
	id := len(m.held) + 1
	one := &reservation{
		layers:   append([]Layer(nil), layers...),
		receipts: receipts,
		cost:     cost,
		made:     now,
		expires:  add(now, big.NewInt(ttl)),
	}
	for _, p := range parts {
		one.states = append(one.states, p.own)
	}
	m.held[id], m.live = one, append(m.live, one)
	return a, id
}

// Settle replaces the cost of a reservation by the actual one. If that
// is more, the difference is charged now, even if there is no room for it; if it is
// less, the state becomes what it would be had the reservation cost that from its own
// moment on; each limit in its own units. An expired reservation, or one of a key
// that was reset, changes nothing and answers with the state now. One that was settled before
// answers what it answered then. It panics when Reserve never gave the id.
func (m *Model) Settle(t int64, id int, actual int64) Answer {
	r := m.held[id]
	if r == nil {
		panic(fmt.Sprintf("model: no reservation %d", id))
	}
	now, parts := m.begin(t, r.layers, actual)
	switch {
	case r.dead || now.Cmp(r.expires) >= 0:
		return standing(now, parts)
	case r.settled != nil:
		return *r.settled
	}
	r.settled = &Answer{} // it is no longer open when more is charged
	for i, p := range parts {
		switch {
		case actual > r.cost:
			m.charge(now, p, p.held(actual)-p.held(r.cost), false)
		case actual < r.cost && r.stands(i, p.own):
			p.own.giveBack(now, r.receipts[i], p.held(r.cost)-p.held(actual))
		}
	}
	_, parts = m.begin(t, r.layers, actual)
	a := standing(now, parts)
	r.settled = &a
	return a
}

// stands reports whether a layer may still give back: of limits that drain, no other
// numbers have come into force since.
func (r *reservation) stands(i int, s state) bool {
	return !drains(r.layers[i].Spec.Kind) || s == r.states[i]
}

// Cancel is Settle with a true cost of 0.
func (m *Model) Cancel(t int64, id int) Answer { return m.Settle(t, id, 0) }

// open says whether a charge of a state waits for its true cost, and may still
// lower it.
func (m *Model) open(s state, now *big.Int) bool {
	m.live = slices.DeleteFunc(m.live, func(r *reservation) bool {
		return r.dead || r.settled != nil || r.cost == 0 || now.Cmp(r.expires) >= 0
	})
	return slices.ContainsFunc(m.live, func(r *reservation) bool { return slices.Contains(r.states, s) })
}

// killReservations ends every reservation that charged a place.
func (m *Model) killReservations(p place) {
	for _, r := range m.held {
		r.dead = r.dead || slices.ContainsFunc(r.layers, func(l Layer) bool { return placeOf(l) == p })
	}
}
