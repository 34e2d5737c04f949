package fallback

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// Debts is what was let through without a shared store, to be charged to it once it
// answers again. It may be used from many goroutines at once. It runs one goroutine
// of its own while there are debts.
type Debts struct {
	main, local stint.Store
	most        int
	byCaller    bool // no goroutine posts: callers of Post do
	stop        context.CancelFunc
	done        context.Context
	wake        chan struct{}
	running     sync.WaitGroup

	pending []*posting // that may have been made, and were not answered; of the goroutine alone

	mu               sync.Mutex // held for no call to a store
	owed             map[debtor]*debt
	settlements      []*settlement
	posting          bool
	closed           bool
	posted, forgiven uint64
}

// A debtor is a key under one limit: state belongs to the name that this is
// bound under, however often, and to its ID.
type debtor struct{ name, limit, key string }

func debtorOf(shared stint.Bound, key string) debtor {
	return debtor{shared.Name(), shared.Limits()[0].ID(), key}
}

type debt struct {
	lenders []lender

	units int64
	id    stint.ReservationID // of the reservation that posts the debt, once there is one
	final int64               // what it is settled at: the same each time
	maybe bool                // that has been tried, and may have been done
	away  int                 // postings that it has units in
}

const (
	mostLenders = 4 // forms that are remembered of one debt: those that count the longest

	postEvery  = 250 * time.Millisecond // how often a store that fails is tried
	postApart  = 50 * time.Millisecond  // between two tries, also where it answers in between
	postWithin = time.Minute            // how long a posting's reservation may last
	mostOwed   = 65_536
)

// A lender is a form of a limit that let through what is owed. Each form counts
// what the others let through: what counts still is what counts under any.
type lender struct {
	shared, local stint.Bound
	most          int64 // the largest capacity that local had when units were added
}

// lent notes which form let something through.
func (one *debt) lent(shared, local stint.Bound) {
	whole, capacity := shared.Limits()[0], local.Limits()[0].Capacity()
	i := slices.IndexFunc(one.lenders, func(o lender) bool { return o.shared == shared || o.shared.Limits()[0] == whole })
	if i < 0 {
		i, one.lenders = len(one.lenders), append(slices.Clip(one.lenders), lender{shared: shared})
	}
	one.lenders[i].local, one.lenders[i].most = local, max(one.lenders[i].most, capacity)
	if len(one.lenders) > mostLenders {
		soonest := slices.MinFunc(one.lenders, func(a, b lender) int { return cmp.Compare(a.forgets(), b.forgets()) })
		one.lenders = slices.DeleteFunc(one.lenders, func(o lender) bool { return o.shared == soonest.shared })
	}
}

// forgets returns the time after which nothing counts under a form.
func (l lender) forgets() time.Duration {
	m, err := l.local.Limits()[0].Meter()
	if err != nil {
		return 0 // of a limit that is bound there is none
	}
	return m.Longest()
}

// NewDebts returns an empty book of debts to a shared store, for what the local
// store lets through. most is the greatest number of keys to remember; 0 is 65,536.
func NewDebts(shared, local stint.Store, most int) *Debts {
	if most <= 0 {
		most = mostOwed
	}
	d := &Debts{main: shared, local: local, most: most, owed: map[debtor]*debt{}, wake: make(chan struct{}, 1)}
	d.done, d.stop = context.WithCancel(context.Background())
	return d
}

// Add notes that the key owes units under the one limit that shared and local
// are bound to.
func (d *Debts) Add(shared, local stint.Bound, key string, units int64) {
	if units <= 0 {
		return
	}
	who := debtorOf(shared, key)
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.owed[who]
	switch {
	case d.closed:
		return
	case one == nil && len(d.owed) >= d.most:
		d.forgiven += uint64(units)
		return
	case one == nil:
		one = &debt{}
		d.owed[who] = one
	}
	one.units += min(units, math.MaxInt64-one.units)
	one.lent(shared, local)
	d.begin()
}

// begin has what is owed posted, unless it is already. The lock is held.
func (d *Debts) begin() {
	if !d.posting && !d.byCaller {
		d.posting = true
		d.running.Go(d.post)
	}
}

// Forget drops what a key owes.
func (d *Debts) Forget(shared stint.Bound, key string) {
	who := debtorOf(shared, key)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.owed, who)
}

// Wake notes that the shared store answers again.
func (d *Debts) Wake() {
	select {
	case d.wake <- struct{}{}:
	default: // it has been said
	}
}

// Stats returns how many keys owe something, how many units have been charged,
// and how many were not remembered.
func (d *Debts) Stats() (owing int, posted, forgiven uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.owed), d.posted, d.forgiven
}

// Close forgets everything that is owed and waits for the goroutine.
func (d *Debts) Close() {
	d.mu.Lock()
	d.closed = true
	clear(d.owed)
	d.settlements = nil
	d.mu.Unlock()
	d.stop()
	d.running.Wait()
}

// post tries to charge what is owed, round after round, until nothing is.
func (d *Debts) post() {
	for {
		d.round()
		d.mu.Lock()
		if len(d.owed) == 0 && len(d.settlements) == 0 {
			d.posting = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		d.pause(nil, postApart)                                  // of a cluster, one node may answer while another fails
		d.pause(d.wake, postEvery/2+rand.N(postEvery)-postApart) // not all processes at the same moment
	}
}

// pause waits for a while, for wake, or until the debts are closed.
func (d *Debts) pause(wake <-chan struct{}, most time.Duration) {
	pause := time.NewTimer(most)
	defer pause.Stop()
	select {
	case <-wake:
	case <-pause.C:
	case <-d.done.Done():
	}
}

// round goes through everything that is owed now, and gives up where the
// shared store fails.
func (d *Debts) round() {
	d.settleAll()
	d.mu.Lock()
	all := make([]debtor, 0, len(d.owed))
	for who := range d.owed {
		all = append(all, who)
	}
	d.mu.Unlock()
	if charger, ok := d.main.(Charger); ok {
		d.postAll(charger, all)
		return
	}
	for _, who := range all {
		if d.settle(who) != nil {
			return
		}
	}
}

// settle charges one key with what it owes, as far as that still counts, by a
// reservation of nothing that is settled at the debt: it can be tried again
// and counts once.
func (d *Debts) settle(who debtor) error {
	d.mu.Lock()
	one := d.owed[who]
	if one == nil {
		d.mu.Unlock()
		return nil
	}
	id, final, units, lenders := one.id, one.final, one.units, slices.Clone(one.lenders)
	d.mu.Unlock()
	if id == "" {
		counts, shared := counting(lenders, who.key)
		if final = min(units, counts); final > 0 {
			var err error
			if _, id, err = d.main.Reserve(d.done, []stint.Layer{{Bound: shared, Key: who.key}}, 0, postWithin); err != nil {
				return d.kept(err, who, one)
			}
			d.mu.Lock()
			one.id, one.final = id, final
			// What is added from here on is a further debt.
			one.units -= units
			d.mu.Unlock()
			units = 0
		}
	} else {
		units = 0
	}
	var failed error
	if final > 0 {
		if _, failed = d.main.Settle(d.done, id, final); failed != nil && !lasting(failed) {
			d.mu.Lock()
			defer d.mu.Unlock()
			one.maybe = one.maybe || errors.Is(failed, stint.ErrAmbiguous)
			return failed
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case failed == nil:
		d.posted += uint64(final)
	case errors.Is(failed, stint.ErrReservation) && !one.maybe: // it has expired, and nothing was charged: once more
		one.units += min(final, math.MaxInt64-one.units)
	default: // it may have been charged, or never will be
		d.forgiven += uint64(final)
	}
	one.id, one.final, one.maybe = "", 0, false
	if one.units -= units; one.units <= 0 && d.owed[who] == one {
		delete(d.owed, who)
	}
	return nil
}

// kept returns an error after which a debt is tried again. A store that is closed
// will never take it: it is forgiven, and there is no error.
func (d *Debts) kept(err error, who debtor, one *debt) error {
	if !errors.Is(err, stint.ErrClosed) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owed[who] == one {
		d.forgiven += uint64(one.units)
		delete(d.owed, who)
	}
	return nil
}

// counting returns how many units of a key's still count in the local store, under
// the form that counts the most, and that form in the shared one: what time has
// forgiven here is not charged there.
func counting(lenders []lender, key string) (most int64, shared stint.Bound) {
	for _, l := range lenders {
		if n := l.counting(key); n > most || shared == nil {
			most, shared = n, l.shared
		}
	}
	return most, shared
}

// counting returns how many units of a key's still count under one form. Where a local bucket or queue
// has become smaller since, because more processes share it, what counts of it is
// taken as a part of the most that it was. Windows and logs keep their counts, as
// far as the smaller limit holds them.
func (l lender) counting(key string) int64 {
	state, err := l.local.Decide(context.Background(), meter.OpPeek, key, 0)
	if err != nil {
		return math.MaxInt64
	}
	used := state.Limit - state.Remaining
	switch l.local.Limits()[0].Algorithm() {
	case meter.GCRA, meter.LeakyQueue, meter.TokenBucketInterval:
	default:
		if used < state.Limit {
			return used
		}
	}
	if l.most <= state.Limit || state.Limit < 1 {
		return used
	}
	high, low := bits.Mul64(uint64(used), uint64(l.most))
	part, rest := bits.Div64(high, low, uint64(state.Limit))
	if rest > 0 {
		part++
	}
	return int64(part)
}
