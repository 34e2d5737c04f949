package fallback

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/meter"
)

// Debts is what was let through without a shared store, to be charged to it once it
// answers again. It may be used from many goroutines at once. It runs one goroutine
// of its own while there are debts.
type Debts struct {
	main, local stint.Store
	charger     Charger // main, or what charges it key by key
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

// A debt is what a key owes under one limit. Its state in either store is the same
// whichever count and burst let the units through, so those of the last request stand
// for all.
type debt struct {
	shared, local stint.Bound
	fastest       stint.Limit // that the local store held it to when units were added
	units         int64
	away          int // postings that it has units in
}

const (
	postEvery = 250 * time.Millisecond // how often a store that fails is tried
	postApart = 50 * time.Millisecond  // between two tries, also where it answers in between
	mostOwed  = 65_536
)

// NewDebts returns an empty book of debts to a shared store, for what the local
// store lets through. most is the greatest number of keys to remember; 0 is 65,536.
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
	one.shared, one.local = shared, local
	if now := local.Limits()[0]; now.Count() > one.fastest.Count() { // their periods are the same
		one.fastest = now
	}
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
	d.postAll(all)
}

// counting returns how many units of a key still count in the local store: what time has
// forgiven here is not charged in the shared one. probes are limits that it has bound
// in this round.
func (d *Debts) counting(one *debt, key string, probes map[debtor]stint.Bound) int64 {
	state, err := one.local.Decide(context.Background(), meter.OpPeek, key, 0)
	if err != nil {
		return math.MaxInt64
	}
	l := one.local.Limits()[0]
	if l.Ban() > 0 && state.Remaining == 0 { // a ban denies as long as it lasts, whatever counts
		l = unbanned(l)
		if state, err = d.look(one.local, l, key, probes); err != nil {
			return math.MaxInt64
		}
	}
	switch {
	case state.Remaining > 0:
		return state.Limit - state.Remaining
	case l.Algorithm().Evenly(): // with no room left, how much more there is shows in the time that it takes
		return max(state.Limit, ratefields.MulDiv(max(int64(state.ResetAfter)-1, 0), one.fastest.Count(), int64(one.fastest.Period())))
	case l.Algorithm().Takes(meter.Burst): // and here in lumps
		lumps := (int64(state.ResetAfter)-1)/int64(l.Period()) + 1
		return max(state.Limit, ratefields.MulDiv(lumps, one.fastest.Count(), 1))
	}
	// Units with dates are the same whatever the count: a limit that has more than is in
	// use sees them all.
	if state, err = d.look(one.local, roomy(l), key, probes); err != nil {
		return math.MaxInt64
	}
	return state.Limit - state.Remaining
}

// look returns what the local store answers to another limit of the same identity.
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
