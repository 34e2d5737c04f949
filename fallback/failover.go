package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A Failover is a store that several processes share, and the one in this process
// that decides while it fails. A [Store] and a policy both use it. Limits are bound in
// both stores as a [Pair]. It may be used from many goroutines at once.
type Failover struct {
	main, local stint.Store // local is nil if there is none
	shares      *Shares     // of limits in local
	debts       *Debts
	reserved    reservations
	changed     func(error)
	answered    func() uint64 // nil if all answers of main are the shared store's

	degraded atomic.Bool
	failed   atomic.Uint64
	since    atomic.Uint64 // answered, at the last failure
}

// A Caching shared store answers some requests from memory, which says nothing of
// whether the store behind it is there.
type Caching interface {
	// Answered returns how many calls the store behind has answered.
	Answered() uint64
}

// NewFailover returns the failover of a shared store. Without a local store there is
// none to decide in its place. It uses the options Local, Nodes, MaxOwed,
// PostByCaller and OnChange, and closes neither store.
func NewFailover(main stint.Store, o Options) *Failover {
	f := &Failover{main: main, local: o.Local, changed: o.OnChange}
	if c, ok := main.(Caching); ok {
		f.answered = c.Answered
	}
	if o.Local != nil {
		f.shares = NewShares(o.Local, o.Nodes)
		f.debts = NewDebts(main, o.Local, o.MaxOwed)
		f.debts.byCaller = o.PostByCaller
	}
	return f
}

// SetNodes sets the number of processes that share the limits, in place of
// Options.Nodes; see [Shares.SetNodes].
func (f *Failover) SetNodes(n int) error {
	if f.local == nil {
		return nil
	}
	return f.shares.SetNodes(n)
}

// Nodes returns the number of processes that share the limits.
func (f *Failover) Nodes() int64 {
	if f.local == nil {
		return 1
	}
	f.shares.mu.Lock()
	defer f.shares.mu.Unlock()
	return f.shares.nodes
}

// Fails reports whether an error of the shared store is its failure, which
// another store may decide in place of, and not the caller's doing. A failure is
// noted.
func (f *Failover) Fails(err error) bool {
	if callersFault(err) {
		return false
	}
	f.failed.Add(1)
	if f.answered != nil {
		f.since.Store(f.answered())
	}
	if f.degraded.CompareAndSwap(false, true) && f.changed != nil {
		f.changed(err)
	}
	return true
}

// callersFault reports whether an error of a store says that the call was wrong:
// nothing that another store would decide better.
func callersFault(err error) bool {
	theirs := []error{stint.ErrCost, stint.ErrLayers, stint.ErrReservation, stint.ErrFull}
	return slices.ContainsFunc(theirs, func(one error) bool { return errors.Is(err, one) })
}

// lasting reports whether an error of a posting will not go away: that of a
// wrong call, and of a store that is closed.
func lasting(err error) bool { return callersFault(err) || errors.Is(err, stint.ErrClosed) }

// Answered notes that the shared store has answered, so that debts are charged to it
// within 50 ms, and not only at the next try, four times a second. Of a [Caching] store it
// counts only once a call has been answered since the last failure.
func (f *Failover) Answered() {
	if !f.degraded.Load() || f.answered != nil && f.answered() == f.since.Load() {
		return
	}
	if f.degraded.CompareAndSwap(true, false) {
		if f.debts != nil {
			f.debts.Wake()
		}
		if f.changed != nil {
			f.changed(nil)
		}
	}
}

// Stats returns what has been done.
func (f *Failover) Stats() Stats {
	st := Stats{Degraded: f.degraded.Load(), Failed: f.failed.Load()}
	if f.debts != nil {
		st.Owing, st.Posted, st.Forgiven = f.debts.Stats()
	}
	return st
}

// Close forgets what is owed, and waits for the goroutine that posts it. The
// stores stay open.
func (f *Failover) Close() {
	if f.debts != nil {
		f.debts.Close()
	}
}

// A Pair is limits that are bound together, in both stores.
type Pair struct {
	// Main and Local are what each store decides by. Local is nil where there is
	// no local store.
	Main, Local stint.Bound

	failover *Failover
	each     []single
}

// A single is one limit of a pair by itself.
type single struct{ main, local stint.Bound }

// Bind makes limits known to both stores under a name: to the local one at this
// process's share. bind is what does it in the shared store; nil is its Bind.
func (f *Failover) Bind(bind func(name string, limits ...stint.Limit) (stint.Bound, error), name string, limits ...stint.Limit) (*Pair, error) {
	if bind == nil {
		bind = f.main.Bind
	}
	p := &Pair{failover: f, each: make([]single, len(limits))}
	var err error
	if p.Main, err = bind(name, limits...); err != nil {
		return nil, err
	}
	for i := range p.each {
		if p.each[i].main, err = apart(p.Main, i, len(limits), bind); err != nil {
			return nil, err
		}
	}
	if f.local == nil {
		return p, nil
	}
	if p.Local, err = f.shares.Bind(name, limits...); err != nil {
		return nil, fmt.Errorf("in the local store: %w", err)
	}
	for i := range p.each {
		if p.each[i].local, err = apart(p.Local, i, len(limits), f.local.Bind); err != nil {
			return nil, fmt.Errorf("in the local store: %w", err)
		}
	}
	return p, nil
}

// apart is [Apart] for limit i of the given number; a single limit is by itself
// already.
func apart(b stint.Bound, i, of int, bind func(name string, limits ...stint.Limit) (stint.Bound, error)) (stint.Bound, error) {
	if of == 1 {
		return b, nil
	}
	return Apart(b, i, bind)
}

// Limit returns limit i by itself, in the shared store.
func (p *Pair) Limit(i int) stint.Bound { return p.each[i].main }

// Warm charges the local store with what the shared one has let through: each
// limit by itself, as far as its share goes.
func (p *Pair) Warm(key string, units int64) {
	if units == 0 || p.Local == nil {
		return
	}
	for _, one := range p.each {
		// An error leaves it colder, which is no reason to deny.
		_, _ = one.local.Decide(context.Background(), meter.OpTakeUpTo, key, units)
	}
}

// Owe notes what the local store has charged by itself, because of an error of the
// shared one: it is charged there once that answers again. That is every limit where the
// request passed, and those that count what they deny where it did not. What may have been
// charged already is not.
func (p *Pair) Owe(why error, key string, units int64, passed bool) {
	if units == 0 || p.Local == nil || errors.Is(why, stint.ErrAmbiguous) {
		return
	}
	for i, one := range p.each {
		if passed || p.Main.Limits()[i].CountDenied() {
			p.failover.debts.Add(one.main, one.local, key, units)
		}
	}
}

// Forget drops what a key owes.
func (p *Pair) Forget(key string) {
	if p.Local == nil {
		return
	}
	for _, one := range p.each {
		p.failover.debts.Forget(one.main, key)
	}
}
