package fallback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-dev/stint"
)

// Units that are settled above their reservation have been used, whichever store made the
// reservation and whichever is away when it is settled. So a failover remembers which keys the
// reservations of this process charge, as long as these live, and owes the shared store the
// settlements that it could not tell it.

// A Reserved is one key of a reservation, under limits that are bound in both stores. Weight is how
// many units each unit of cost takes.
type Reserved struct {
	Pair   *Pair
	Key    string
	Weight int64
}

// reservations remembers the reservations of this process, in either store.
type reservations struct {
	mu   sync.Mutex
	all  map[stint.ReservationID]reserved
	tidy int // at this size, those that have ended are dropped
}

type reserved struct {
	of   []Reserved
	cost int64
	ends time.Time
}

const mostReserved = 65_536 // the most that are remembered

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

// take returns what is remembered of a reservation and forgets it, since it is settled once.
func (r *reservations) take(id stint.ReservationID) reserved {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.all[id]
	delete(r.all, id)
	return one
}

// above calls do for each key with the units that cost charges above the reserved cost.
func (r reserved) above(cost int64, do func(p *Pair, key string, units int64)) {
	for _, one := range r.of {
		if more := units(cost, one.Weight) - units(r.cost, one.Weight); more > 0 {
			do(one.Pair, one.Key, more)
		}
	}
}

// Reserve remembers which keys a reservation charges, whichever store made it.
func (f *Failover) Reserve(id stint.ReservationID, cost int64, ttl time.Duration, of []Reserved) {
	if f.local != nil && id != "" {
		f.reserved.add(id, reserved{of, cost, time.Now().Add(ttl)})
	}
}

// SettleLocal settles a reservation of the local store. Units above the reserved cost are owed to
// the shared store.
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

// Settle settles a reservation of the shared store. While that fails, the settlement is owed and
// done once the store answers, whichever process made the reservation. The answer then does not say
// what remains. The local store is meanwhile charged with the units above the reserved cost, where
// this process knows that cost.
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

// owe notes what the local store has charged without asking the shared one.
func (p *Pair) owe(key string, units int64) {
	p.Owe(nil, key, units, true)
}

// A settlement is a settlement that the shared store has not answered.
type settlement struct {
	id    stint.ReservationID
	cost  int64
	of    reserved
	maybe bool // it may have been settled
}

// later stores a settlement to be done, and reports whether there was room for it.
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

// settleAll does the settlements that are owed, until the store fails. A settlement can be
// repeated, and counts once.
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
			case errors.Is(err, stint.ErrReservation) && !s.maybe: // the reservation has expired: what was reserved stays charged
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
