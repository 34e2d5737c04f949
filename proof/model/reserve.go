package model

import (
	"fmt"
	"math/big"
	"slices"
)

// reservation is a charge whose true cost is still to be told.
type reservation struct {
	layers   []Layer
	receipts []receipt // one for each layer
	changed  []bool    // layers whose limit was changed since: nothing is given back to them
	cost     int64
	expires  *big.Int // from this instant on it stands as charged
	dead     bool     // one of its keys was reset
	settled  *Answer  // what the first settle answered
}

// Reserve is Take with an id by which the true cost can be told within ttl
// nanoseconds. Ids count from 1; a denied one has id 0.
func (m *Model) Reserve(t int64, layers []Layer, cost, ttl int64) (Answer, int) {
	now, parts := m.begin(t, layers, cost)
	a, receipts := take(now, parts, cost)
	if !a.Allowed {
		return a, 0
	}
	id := len(m.held) + 1
	r := &reservation{
		layers:   append([]Layer(nil), layers...),
		receipts: receipts,
		changed:  make([]bool, len(layers)),
		cost:     cost,
		expires:  add(now, big.NewInt(ttl)),
	}
	m.held[id], m.live = r, append(m.live, r)
	return a, id
}

// Settle tells the true cost of a reservation. What is more than was reserved
// is charged now, room or not; with less, the state becomes what it would be had
// the reservation cost that from its own moment on; each limit in its own units. An expired reservation, or one of a key that was reset,
// changes nothing and answers with the state now. One that was settled before
// answers what it answered then. It panics when Reserve never gave the id.
func (m *Model) Settle(t int64, id int, actual int64) Answer {
	r := m.held[id]
	if r == nil {
		panic(fmt.Sprintf("model: no reservation %d", id))
	}
	now := m.clock(t)
	over := r.dead || now.Cmp(r.expires) >= 0
	again := r.settled != nil
	if !over && !again {
		r.settled = &Answer{} // it is no longer open when more is charged
	}
	now, parts := m.begin(t, r.layers, actual)
	switch {
	case over:
		return standing(now, parts)
	case again:
		return *r.settled
	}
	for i, p := range parts {
		switch {
		case actual > r.cost:
			p.charge(now, p.held(actual)-p.held(r.cost), charging{open: p.open})
		case actual < r.cost && !r.changed[i]:
			p.giveBack(now, r.receipts[i], p.held(r.cost)-p.held(actual))
		}
	}
	a := standing(now, parts)
	r.settled = &a
	return a
}

// Cancel is Settle with a true cost of 0.
func (m *Model) Cancel(t int64, id int) Answer { return m.Settle(t, id, 0) }

// open says whether a charge of a place at least 1 unit high waits for its true
// cost, and may still lower it.
func (m *Model) open(p place, now *big.Int) bool {
	m.live = slices.DeleteFunc(m.live, func(r *reservation) bool {
		return r.dead || r.settled != nil || r.cost == 0 || now.Cmp(r.expires) >= 0
	})
	for _, r := range m.live {
		for i, l := range r.layers {
			if (place{l.Name, l.Key}) == p && !r.changed[i] {
				return true
			}
		}
	}
	return false
}

// killReservations ends every reservation that charged a place.
func (m *Model) killReservations(p place) {
	for _, r := range m.held {
		for _, l := range r.layers {
			if (place{l.Name, l.Key}) == p {
				r.dead = true
			}
		}
	}
}

// Change gives the limit that is called name other parameters, from t on, for
// all of its keys. What is in use stays in use, see become; where units cannot
// keep their dates, another kind, or another period, calendar or zone of a
// window, they are charged at t. Reservations made
// before it give nothing back to that limit; their debts are charged to it as
// it is now. Nothing happens when the two are the same.
func (m *Model) Change(t int64, name string, old, new Spec) {
	now := m.clock(t)
	if old == new {
		return
	}
	for p, s := range m.states {
		if p.name != name {
			continue
		}
		var changed state
		buckets := map[string]bool{GCRA: true, Queue: true}
		if was := s.limitOf().Kind; was == new.Kind || buckets[was] && buckets[new.Kind] {
			changed = s.become(now, new)
		}
		if changed == nil {
			changed = fresh(new)
			used := least(inUse(s, now), maxInt64)
			changed.charge(now, used.Int64(), charging{})
		}
		m.states[p] = changed
	}
	for _, r := range m.held {
		for i := range r.layers {
			if r.layers[i].Name == name {
				r.layers[i].Spec = new
				r.changed[i] = true
			}
		}
	}
}
