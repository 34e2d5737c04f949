package fallback

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/meter"
)

// Debts are the units that were let through without the shared store and are charged to it once it
// answers again. Debts may be used from many goroutines at once. They run one goroutine while there
// are debts.
type Debts struct {
	main, local stint.Store
	charger     Charger // main, or a keyByKey on main
	most        int
	byCaller    bool        // no goroutine posts debts: callers of Post do
	settling    atomic.Bool // unsettled is not empty
	stop        context.CancelFunc
	done        context.Context
	wake        chan struct{}
	running     sync.WaitGroup

	pending []*posting // may have been charged; only the posting goroutine uses them

	mu               sync.Mutex // no call to a store is made while it is held
	owed             map[debtor]*debt
	settlements      map[stint.ReservationID]*settlement
	unsettled        map[debtor]int // how many of settlements are of a key under all limits of a name
	posting          bool
	closed           bool
	posted, forgiven uint64
}

// A debtor is a key under one limit. A state belongs to the name under which the limit is bound,
// however often, and to the ID of the limit.
type debtor struct{ name, limit, key string }

func debtorOf(shared stint.Bound, key string) debtor {
	return debtor{shared.Name(), shared.Limits()[0].ID(), key}
}

// A debt is what a key owes under one limit. Its state in either store does not depend on the count
// and burst that let the units through, so the bounds of the last request serve for all.
type debt struct {
	shared, local stint.Bound
	fastest       stint.Limit // the local store's limit with the greatest count when units were added
	units         int64
	away          int // the number of postings that have units of it
}

const (
	postEvery = 250 * time.Millisecond // mean time between tries at a store that fails
	postApart = 50 * time.Millisecond  // least time between two tries, even if the store answers between them
	mostOwed  = 65_536
)

// NewDebts returns debts to a shared store for what the local store lets through. It remembers at
// most the given number of keys; 0 means 65,536.
func NewDebts(shared, local stint.Store, most int) *Debts {
	if most <= 0 {
		most = mostOwed
	}
	d := &Debts{main: shared, local: local, most: most, owed: map[debtor]*debt{}, wake: make(chan struct{}, 1)}
	var ok bool
	if d.charger, ok = shared.(Charger); !ok {
		d.charger = &keyByKey{shared: shared}
	}
	d.done, d.stop = context.WithCancel(context.Background())
	return d
}

// Add notes that the key owes units under the one limit that is bound in shared and local.
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
	one.shared, one.local = shared, local
	if now := local.Limits()[0]; now.Count() > one.fastest.Count() { // both have the same period
		one.fastest = now
	}
	d.begin()
}

// begin starts the goroutine that posts, unless it runs. The lock is held.
func (d *Debts) begin() {
	if !d.posting && !d.byCaller {
		d.posting = true
		d.running.Go(d.post)
	}
}

// Forget drops the debt of a key.
func (d *Debts) Forget(shared stint.Bound, key string) {
	who := debtorOf(shared, key)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.owed, who)
}

// Wake tells the posting goroutine that the shared store answers again.
func (d *Debts) Wake() {
	select {
	case d.wake <- struct{}{}:
	default: // an earlier call has told it
	}
}

// Stats returns how many keys owe something, how many units have been charged to the shared store,
// and how many were dropped because too many keys owed.
func (d *Debts) Stats() (owing int, posted, forgiven uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.owed), d.posted, d.forgiven
}

// Close drops all debts and waits for the goroutine.
func (d *Debts) Close() {
	d.mu.Lock()
	d.closed = true
	clear(d.owed)
	d.settlements, d.unsettled = nil, nil
	d.settling.Store(false)
	d.mu.Unlock()
	d.stop()
	d.running.Wait()
}

// post charges what is owed, round after round, until nothing is left.
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
		d.pause(nil, postApart)                                  // in a cluster, one node may answer while another fails
		d.pause(d.wake, postEvery/2+rand.N(postEvery)-postApart) // random, so that processes do not all try at once
	}
}

// pause waits until the time is up, wake is signalled, or the debts are closed.
func (d *Debts) pause(wake <-chan struct{}, most time.Duration) {
	pause := time.NewTimer(most)
	defer pause.Stop()
	select {
	case <-wake:
	case <-pause.C:
	case <-d.done.Done():
	}
}

// round tries to charge everything that is owed now, and stops where the shared store fails.
func (d *Debts) round() {
	d.settleAll()
	d.mu.Lock()
	all := make([]debtor, 0, len(d.owed))
	for who := range d.owed {
		all = append(all, who)
	}
	d.mu.Unlock()
	d.postAll(all)
}

// counting returns how many units of a key still count in the local store: what has aged out there
// is not charged to the shared store. probes has the limits that this round has bound to find that
// out.
func (d *Debts) counting(one *debt, key string, probes map[debtor]stint.Bound) int64 {
	state, err := one.local.Decide(context.Background(), meter.OpPeek, key, 0)
	if err != nil {
		return math.MaxInt64
	}
	l := one.local.Limits()[0]
	used, err := InUse(l, one.fastest, state, func(as stint.Limit) (stint.Decision, error) { return d.look(one.local, as, key, probes) })
	if err != nil {
		return math.MaxInt64
	}
	return used
}

// InUse returns how many units a key has in use under one limit, also above what the limit lets
// pass. state is what the limit answered to a peek, fastest has the fastest numbers by which it
// drains, and as answers a peek by another limit of the same identity.
func InUse(l, fastest stint.Limit, state stint.Decision, as func(stint.Limit) (stint.Decision, error)) (int64, error) {
	if l.Ban() > 0 && state.Remaining == 0 { // a ban denies until it ends, whatever counts
		l = unbanned(l)
		var err error
		if state, err = as(l); err != nil {
			return 0, err
		}
	}
	switch {
	case state.Remaining > 0:
		return state.Limit - state.Remaining, nil
	case l.Algorithm().Evenly(): // with nothing left, only the time to reset shows how much is in use, to the microsecond
		return max(state.Limit, ratefields.MulDiv(max(int64(state.ResetAfter-time.Microsecond), 0), fastest.Count(), int64(fastest.Period()))), nil
	}
	// What is in use does not depend on the capacity: a limit with more room shows it all.
	state, err := as(roomy(fastest))
	return state.Limit - state.Remaining, err
}

// look returns the local store's answer to another limit of the same identity.
func (d *Debts) look(local stint.Bound, as stint.Limit, key string, probes map[debtor]stint.Bound) (stint.Decision, error) {
	who := debtor{local.Name(), as.String(), ""}
	probe, known := probes[who]
	if !known {
		var err error
		if probe, err = d.local.Bind(who.name, as); err != nil {
			probe = local
		}
		probes[who] = probe
	}
	return probe.Decide(context.Background(), meter.OpPeek, key, 0)
}
