package fallback

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint"
)

// What a request reserves is not what it costs. So a failover remembers the reservations of this
// process, as long as they live, and tells the other store what they cost: the local store has each
// reservation of the shared one as a reservation of its own, and the shared store is owed a
// reservation of the local one once that is settled or has expired.

// A Reserved is one key of a reservation, under limits that are bound in both stores. Weight is how
// many units each unit of cost takes, and Excuses how long they excuse denials ([stint.Layer]). What
// is Apart counts in the shared store alone.
type Reserved struct {
	Pair    *Pair
	Key     string
	Weight  int64
	Excuses time.Duration
	Apart   bool
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
	held []held // in the local store, of a reservation of the shared one

	// Of a reservation of the local store: whether the shared store may have charged it too, and
	// what owes the reserved cost when it expires.
	maybe bool
	lapse *time.Timer
}

const mostReserved = 65_536 // the most that are remembered

// add remembers a reservation, and reports whether there was room for it.
func (r *reservations) add(id stint.ReservationID, one reserved) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= max(r.tidy, 64) {
		now := time.Now()
		for id, one := range r.all {
			if one.ends.Before(now) && one.lapse == nil {
				delete(r.all, id)
			}
		}
		r.tidy = min(2*len(r.all), mostReserved)
	}
	if r.all == nil {
		r.all = make(map[stint.ReservationID]reserved)
	}
	if len(r.all) >= mostReserved {
		return false
	}
	r.all[id] = one
	return true
}

// take returns what is remembered of a reservation and forgets it, since it is settled once.
func (r *reservations) take(id stint.ReservationID) reserved {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.all[id]
	delete(r.all, id)
	if one.lapse != nil {
		one.lapse.Stop()
	}
	return one
}

// owes owes the shared store a cost of the reservation, less what that may have charged already.
func (r *reserved) owes(cost, charged int64) {
	for _, one := range r.of {
		if more := units(cost, one.Weight) - units(charged, one.Weight); more > 0 && !one.Apart {
			one.Pair.Owe(nil, one.Key, more, true)
		}
	}
}

// Reserve remembers a reservation of the shared store, and charges the local store with it.
func (f *Failover) Reserve(id stint.ReservationID, cost int64, ttl time.Duration, of []Reserved) {
	if f.local == nil || id == "" || len(of) == 0 {
		return
	}
	one := reserved{of: of, cost: cost, ends: time.Now().Add(ttl)}
	for i := range of {
		one.held = append(one.held, of[i].hold(f.local, cost, ttl)...)
	}
	f.reserved.add(id, one)
}

// Lost has a reservation cancelled once the shared store answers, if err says that the answer to it
// was lost ([stint.LostReservation]): the request is decided without it. of returns what was to be
// reserved. Lost reports whether that will be done.
func (f *Failover) Lost(err error, of func() []Reserved) bool {
	var lost *stint.LostReservation
	return errors.As(err, &lost) && f.debts != nil && f.debts.later(&settlement{id: lost.ID, of: reserved{of: of()}})
}

// ReserveLocal remembers a reservation that the local store made because the shared one failed with
// the error why. It is owed once it is settled, or has expired: until then nobody knows its cost.
func (f *Failover) ReserveLocal(why error, id stint.ReservationID, cost int64, ttl time.Duration, of []Reserved) {
	if id == "" {
		return
	}
	one := reserved{of: of, cost: cost, ends: time.Now().Add(ttl), maybe: errors.Is(why, stint.ErrAmbiguous) && !f.Lost(why, func() []Reserved { return of })}
	one.lapse = time.AfterFunc(ttl, func() { f.lapsed(id, cost, why) })
	if !f.reserved.add(id, one) {
		one.lapse.Stop()
		one.owes(cost, one.charged())
	}
}

// charged returns what the shared store may have charged of a reservation of the local one.
func (r *reserved) charged() int64 {
	if r.maybe {
		return r.cost
	}
	return 0
}

// settled owes what a reservation of the local store has cost.
func (f *Failover) settled(id stint.ReservationID, cost int64) {
	one := f.reserved.take(id)
	one.owes(cost, one.charged())
}

// lapsed owes what nobody has settled of a reservation of the local store. If the answer of the shared
// one was lost, its reservation has lapsed as well, and stands unless it has been cancelled.
func (f *Failover) lapsed(id stint.ReservationID, cost int64, why error) {
	one := f.reserved.take(id)
	one.maybe = one.maybe || f.debts.tooLate(why)
	one.owes(cost, one.charged())
}

// SettleLocal settles a reservation of the local store. Its cost is owed to the shared store.
func (f *Failover) SettleLocal(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if f.local == nil {
		return stint.Decision{}, stint.ErrReservation
	}
	d, err := f.local.Settle(ctx, id, cost)
	if err == nil {
		f.settled(id, cost)
	}
	return d, err
}

// Settle settles a reservation of the shared store. While that fails, the settlement is owed and
// done once the store answers, whichever process made the reservation. The answer then does not say
// what remains. The local store is told too, where this process made the reservation.
func (f *Failover) Settle(ctx context.Context, id stint.ReservationID, cost int64) (stint.Decision, error) {
	if f.debts == nil {
		return f.main.Settle(ctx, id, cost)
	}
	cost = f.debts.settledAt(id, cost)
	d, err := f.main.Settle(ctx, id, cost)
	if err == nil {
		f.Answered()
		one := f.reserved.take(id)
		one.settle(f.local, cost)
		return d, nil
	}
	if cost < 0 || ctx.Err() != nil || lasting(err) || !f.Fails(err) {
		return d, err
	}
	one := f.reserved.take(id)
	one.settle(f.local, cost)
	if !f.debts.later(&settlement{id: id, cost: cost, of: one, maybe: errors.Is(err, stint.ErrAmbiguous)}) {
		return d, err
	}
	return stint.Decision{Allowed: true, Tightest: -1}, nil
}

// A held is what the local store holds of a reservation of the shared one, under one limit: a
// reservation, or units where its share has no room for all.
type held struct {
	of    *single
	key   string
	unit  int64 // how many units each unit of cost takes
	id    stint.ReservationID
	taken int64
}

// hold reserves a cost in the local store, under each limit.
func (r *Reserved) hold(local stint.Store, cost int64, ttl time.Duration) []held {
	if r.Apart {
		return nil
	}
	all := make([]held, len(r.Pair.each))
	want := units(cost, r.Weight)
	for i := range all {
		h := &all[i]
		*h = held{of: &r.Pair.each[i], key: r.Key, unit: r.Weight}
		d, id, err := local.Reserve(context.Background(), []stint.Layer{{Bound: h.of.quiet, Key: h.key, Excuses: r.Excuses}}, want, ttl)
		if h.id = id; err != nil || !d.Allowed {
			h.taken = h.of.warm(h.key, want)
		}
	}
	return all
}

// settle tells the local store what a reservation of the shared one has cost.
func (r *reserved) settle(local stint.Store, cost int64) {
	for _, h := range r.held {
		want := units(cost, h.unit)
		switch {
		case h.id != "":
			_, _ = local.Settle(context.Background(), h.id, want) // without it, the local store denies too much
		case want > h.taken:
			h.of.warm(h.key, want-h.taken)
		case want < h.taken:
			_, _ = local.Refund(context.Background(), []stint.Layer{{Bound: h.of.quiet, Key: h.key}}, h.taken-want)
		}
	}
}

// A settlement is a settlement that the shared store has not answered.
type settlement struct {
	id    stint.ReservationID
	cost  int64
	of    reserved
	maybe bool // it may have been settled
}

// settledAt returns the cost of a settlement: a reservation is settled once, and that may be owed.
func (d *Debts) settledAt(id stint.ReservationID, cost int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.settlements[id]; s != nil && cost >= 0 {
		return s.cost
	}
	return cost
}

// later stores a settlement to be done, unless the reservation has one, and reports whether there
// was room for it.
func (d *Debts) later(s *settlement) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settlements[s.id] != nil {
		return true
	}
	if d.closed || len(d.settlements) >= d.most {
		return false
	}
	if d.settlements == nil {
		d.settlements = make(map[stint.ReservationID]*settlement)
	}
	d.settlements[s.id] = s
	d.awaits(s, 1)
	d.begin()
	return true
}

// tooLate drops the cancellation of a reservation whose answer was lost, as an error says. It reports
// whether that was still owed.
func (d *Debts) tooLate(why error) bool {
	var lost *stint.LostReservation
	if !errors.As(why, &lost) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.settlements[lost.ID]
	d.drops(s)
	return s != nil
}

// drops forgets a settlement that is owed. The lock is held.
func (d *Debts) drops(s *settlement) {
	if s != nil && d.settlements[s.id] == s {
		delete(d.settlements, s.id)
		d.awaits(s, -1)
	}
}

// errUnsettled is why the shared store does not decide about a key.
var errUnsettled = errors.New("fallback: the store has yet to learn what requests of this key have cost")

// Settling reports whether some key is [Pair.Unsettled].
func (f *Failover) Settling() bool { return f.debts != nil && f.debts.settling.Load() }

// Unsettled returns an error while settlements of a key are owed, if a limit notes what it denies:
// the shared store would take what has ended for what is open, which after a while excuses nothing,
// and begin a ban. So another decides in its place.
func (p *Pair) Unsettled(key string) error {
	if !p.bans || !p.failover.Settling() {
		return nil
	}
	d := p.failover.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unsettled[p.debtor(key)] > 0 {
		return errUnsettled
	}
	return nil
}

func (p *Pair) debtor(key string) debtor { return debtor{name: p.Main.Name(), key: key} }

// awaits counts n more settlements of the keys of one. The lock is held.
func (d *Debts) awaits(s *settlement, n int) {
	for _, one := range s.of.of {
		if !one.Pair.bans {
			continue
		}
		if d.unsettled == nil {
			d.unsettled = make(map[debtor]int)
		}
		who := one.Pair.debtor(one.Key)
		if d.unsettled[who] += n; d.unsettled[who] == 0 {
			delete(d.unsettled, who)
		}
	}
	d.settling.Store(len(d.unsettled) > 0)
}

// settleAll does the settlements that are owed, until the store fails. A settlement can be
// repeated, and counts once.
func (d *Debts) settleAll() {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.settlements))
	d.mu.Unlock()
	failed := 0
	for _, s := range all {
		if failed == mostFailed {
			return
		}
		_, err := d.main.Settle(d.done, s.id, s.cost)
		switch {
		case err == nil || lasting(err):
			if errors.Is(err, stint.ErrReservation) && !s.maybe { // it has expired: what was reserved stays charged
				s.of.owes(s.cost, s.of.cost)
			}
			d.mu.Lock()
			d.drops(s)
			d.mu.Unlock()
		default:
			s.maybe = s.maybe || errors.Is(err, stint.ErrAmbiguous)
			failed++
		}
	}
}
