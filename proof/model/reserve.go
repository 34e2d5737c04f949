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
	turns    []int     // of their keys
	cost     int64
	expires  *big.Int // from this instant on it stands as charged
	dead     bool     // one of its keys was reset
	settled  *Answer  // what the first settle answered
}

// Reserve is Take with an id by which the actual cost can be settled within ttl
// nanoseconds. Ids count from 1; a denied one has id 0.
func (m *Model) Reserve(t int64, layers []Layer, cost, ttl int64) (Answer, int) {
	now, r := m.begin(t, layers, cost, cost > 0)
	a, receipts := m.take(now, r, cost)
	if !a.Allowed {
		return a, 0
	}
	id := len(m.held) + 1
	one := &reservation{
		layers:   append([]Layer(nil), layers...),
		receipts: receipts,
		cost:     cost,
		expires:  add(now, big.NewInt(ttl)),
	}
	for i, p := range r.parts {
		one.states = append(one.states, p.state)
		one.turns = append(one.turns, m.turn(place{layers[i].Name, layers[i].Key}))
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
	now := m.clock(t)
	over := r.dead || now.Cmp(r.expires) >= 0
	again := r.settled != nil
	if !over && !again {
		r.settled = &Answer{} // it is no longer open when more is charged
	}
	now, req := m.begin(t, r.layers, actual, !over && !again && actual > r.cost)
	switch {
	case over:
		return standing(now, req.parts)
	case again:
		return *r.settled
	}
	more := func(i int) int64 { return req.parts[i].held(actual) - req.parts[i].held(r.cost) }
	for i, p := range req.parts {
		switch {
		case actual > r.cost:
			p.charge(now, more(i), charging{open: p.open})
		case actual < r.cost && r.stands(m, i, p.state):
			p.giveBack(now, r.receipts[i], p.held(r.cost)-p.held(actual))
		}
	}
	if actual > r.cost {
		m.counted(now, req, more, false)
	}
	for i := range req.asked {
		a := &req.asked[i]
		if m.forget(now, a); m.alone(now, a) {
			m.leave(now, a)
		}
	}
	a := standing(now, req.parts)
	r.settled = &a
	return a
}

// stands reports whether a layer may still give back: no other form has decided
// about its key since, and of limits that rewrite history, the state is the one
// that was charged.
func (r *reservation) stands(m *Model, i int, s state) bool {
	l := r.layers[i]
	f := m.families[place{l.Name, l.Key}]
	if f == nil || f.turn != r.turns[i] || !f.has(s) {
		return false
	}
	switch l.Spec.Kind {
	case GCRA, Queue, Interval, Log:
		return s == r.states[i]
	}
	return true
}

// has reports whether a state is one that the key has.
func (f *family) has(s state) bool {
	return slices.ContainsFunc(f.forms, func(g *form) bool { return slices.Contains(g.states, s) })
}

// turn is when the form that decides about a key changed last.
func (m *Model) turn(p place) int {
	if f := m.families[p]; f != nil {
		return f.turn
	}
	return 0
}

// Cancel is Settle with a true cost of 0.
func (m *Model) Cancel(t int64, id int) Answer { return m.Settle(t, id, 0) }

// open says whether a charge of a state at least 1 unit high waits for its true
// cost, and may still lower it.
func (m *Model) open(p place, s state, now *big.Int) bool {
	m.live = slices.DeleteFunc(m.live, func(r *reservation) bool {
		return r.dead || r.settled != nil || r.cost == 0 || now.Cmp(r.expires) >= 0
	})
	for _, r := range m.live {
		for i, l := range r.layers {
			if (place{l.Name, l.Key}) == p && r.states[i] == s && r.turns[i] == m.turn(p) {
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
