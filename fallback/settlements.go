package fallback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-dev/stint"
)

// What is settled above its reservation is used, whichever store made the reservation and
// whichever is away when it is settled. So a failover remembers what reservations of this
// process are of, as long as these live, and owes the shared store what it has not been told.

// A Reserved is a part of a reservation: a key under limits that are bound in both stores,
// and how many units each unit of cost is.
type Reserved struct {
	Pair   *Pair
	Key    string
	Weight int64
}

// reservations are those of this process, in either store.
type reservations struct {
	mu   sync.Mutex
	all  map[stint.ReservationID]reserved
	tidy int // at this size those that have ended are dropped
}

type reserved struct {
	of   []Reserved
	cost int64
	ends time.Time
}

const mostReserved = 65_536 // that are remembered

// add remembers a reservation.
func (r *reservations) add(id stint.ReservationID, one reserved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= max(r.tidy, 64) {
		now := time.Now()
		for id, one := range r.all {
			if one.ends.Before(now) {
				delete(r.all, id)
			}
		}
		r.tidy = min(2*len(r.all), mostReserved)
	}
	if r.all == nil {
		r.all = make(map[stint.ReservationID]reserved)
	}
	if len(r.all) < mostReserved {
		r.all[id] = one
	}
}

// take returns what a reservation is of, and forgets it: it is settled once.
func (r *reservations) take(id stint.ReservationID) reserved {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.all[id]
	delete(r.all, id)
	return one
}

// above calls do with what a cost charges above the reserved one.
func (r reserved) above(cost int64, do func(p *Pair, key string, units int64)) {
	for _, part := range r.of {
		if more := units(cost, part.Weight) - units(r.cost, part.Weight); more > 0 {
			do(part.Pair, part.Key, more)
		}
	}
}

// Reserve notes what a reservation is of, that either store has made.
func (f *Failover) Reserve(id stint.ReservationID, cost int64, ttl time.Duration, of []Reserved) {
	if f.local != nil && id != "" {
		f.reserved.add(id, reserved{of, cost, time.Now().Add(ttl)})
	}
}

// SettleLocal settles a reservation of the local store. What that charges above the
// reserved cost is owed.
func (f *Failover) SettleLocal(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if f.local == nil {
		return stint.Decision{}, stint.ErrReservation
	}
	d, err := f.local.Settle(ctx, id, cost)
	if err == nil {
		f.reserved.take(id).above(cost, (*Pair).owe)
	}
	return d, err
}

// Settle settles a reservation of the shared store. While that fails, the settlement is
// owed: it is done once the store answers, whichever process has made the reservation. The
// answer says nothing of what is left then. The local store is charged meanwhile with what
// is above the reserved cost, as far as it is known.
func (f *Failover) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	d, err := f.main.Settle(ctx, id, cost)
	if f.debts == nil {
		return d, err
	}
	if err == nil {
		f.Answered()
		f.reserved.take(id).above(cost, (*Pair).Warm)
		return d, nil
	}
	if cost < 0 || ctx.Err() != nil || lasting(err) || !f.Fails(err) {
		return d, err
	}
	one := f.reserved.take(id)
	one.above(cost, (*Pair).Warm)
	if !f.debts.later(&settlement{id: id, cost: cost, of: one, maybe: errors.Is(err, stint.ErrAmbiguous)}) {
		return d, err
	}
	return stint.Decision{Allowed: true, Tightest: -1}, nil
}

// owe notes what the local store has charged and the shared one has not been asked for.
func (p *Pair) owe(key string, units int64) {
	p.Owe(nil, key, units, true)
}

// A settlement is one that the shared store has not answered.
type settlement struct {
	id    stint.ReservationID
	cost  int64
	of    reserved
	maybe bool // it may have been done
}

// later notes a settlement to be done, and reports whether there is room.
func (d *Debts) later(s *settlement) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.settlements) >= d.most {
		return false
	}
	d.settlements = append(d.settlements, s)
	d.begin()
	return true
}

// settleAll does the settlements that are owed, as far as the store answers. They can be
// tried again, and count once.
func (d *Debts) settleAll() {
	d.mu.Lock()
	all := d.settlements
	d.settlements = nil
	d.mu.Unlock()
	failed, left := 0, all[:0]
	for _, s := range all {
		if failed < mostFailed {
			_, err := d.main.Settle(d.done, s.id, s.cost)
			switch {
			case err == nil:
				continue
			case errors.Is(err, stint.ErrReservation) && !s.maybe: // it has ended: what was reserved stands
				s.of.above(s.cost, (*Pair).owe)
				continue
			case lasting(err):
				continue
			}
			s.maybe = s.maybe || errors.Is(err, stint.ErrAmbiguous)
			failed++
		}
		left = append(left, s)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.settlements = append(left, d.settlements...)
	}
}
