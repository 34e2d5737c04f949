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

// A Failover pairs a store that several processes share with a store in this process that decides
// while the shared one fails. A [Store] and a policy both use it. Limits are bound in both stores
// as a [Pair]. It may be used from many goroutines at once.
type Failover struct {
	main, local stint.Store // local is nil if there is none
	shares      *Shares     // of limits in local
	debts       *Debts
	reserved    reservations
	changed     func(error)
	answered    func() uint64 // nil if every answer of main comes from the shared store

	degraded atomic.Bool
	failed   atomic.Uint64
	since    atomic.Uint64 // what answered returned at the last failure
}

// A Caching store answers some requests from memory. An answer from memory does not show that the
// shared store is up.
type Caching interface {
	// Answered returns how many calls the shared store itself has answered.
	Answered() uint64
}

// NewFailover returns the failover of a shared store. Without Options.Local, nothing decides in its
// place. It uses the options Local, Nodes, MaxOwed, PostByCaller and OnChange, and closes neither
// store.
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

// SetNodes sets the number of processes that share the limits, as Options.Nodes does; see
// [Shares.SetNodes].
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

// Fails reports whether an error of the shared store is the store's failure, so that another store
// may decide in its place, and not a wrong call. It notes the failure.
func (f *Failover) Fails(err error) bool {
	if callersFault(err) {
		return false
	}
	if f.failed.Add(1); errors.Is(err, errUnsettled) {
		return true // it may be well
	}
	if f.answered != nil {
		f.since.Store(f.answered())
	}
	if f.degraded.CompareAndSwap(false, true) && f.changed != nil {
		f.changed(err)
	}
	return true
}

// callersFault reports whether an error says that the call was wrong, so that no other store would
// decide it better.
func callersFault(err error) bool {
	theirs := []error{stint.ErrCost, stint.ErrLayers, stint.ErrReservation, stint.ErrFull}
	return slices.ContainsFunc(theirs, func(one error) bool { return errors.Is(err, one) })
}

// lasting reports whether a posting with this error will fail again: the call was wrong, or the
// store is closed.
func lasting(err error) bool { return callersFault(err) || errors.Is(err, stint.ErrClosed) }

// Answered notes that the shared store has answered, so that debts are charged to it within 50 ms
// instead of at the next try, four times a second. For a [Caching] store this counts only if it has
// answered a call since the last failure.
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

// Stats returns what the failover has done.
func (f *Failover) Stats() Stats {
	st := Stats{Degraded: f.degraded.Load(), Failed: f.failed.Load()}
	if f.debts != nil {
		st.Owing, st.Posted, st.Forgiven = f.debts.Stats()
	}
	return st
}

// Close drops what is owed, and waits for the goroutine that posts it. Both stores stay open.
func (f *Failover) Close() {
	if f.debts != nil {
		f.debts.Close()
	}
}

// A Pair is limits that are bound together in both stores.
type Pair struct {
	// Main and Local are the limits bound in each store. Local is nil without a local store.
	Main, Local stint.Bound

	failover *Failover
	each     []single
	bans     bool // a limit notes what it denies: by a ban, or with count_denied
}

// A single is one limit of a pair on its own. What the shared store lets through is charged under
// quiet, the local limit without a ban and without count_denied: that it finds no room there is no
// denial of the client.
type single struct{ main, local, quiet stint.Bound }

// warm charges the local store with up to units, and returns how many.
func (s *single) warm(key string, units int64) int64 {
	d, err := s.quiet.Decide(context.Background(), meter.OpTakeUpTo, key, units)
	if err != nil { // the local store then counts too little, which is no reason to deny
		return 0
	}
	return d.Taken
}

// Bind binds limits under a name in both stores, in the local one at this process's share. In the
// shared store bind does it; nil means the store's own Bind.
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
		p.bans = p.bans || limits[i].Ban() > 0 || limits[i].CountDenied()
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
		if p.each[i].quiet = p.each[i].local; limits[i].Ban() > 0 || limits[i].CountDenied() {
			if p.each[i].quiet, err = f.shares.Bind(name, unbanned(limits[i])); err != nil {
				return nil, fmt.Errorf("in the local store: %w", err)
			}
		}
	}
	return p, nil
}

// apart returns limit i of a bound with the given number of limits on its own; see [Apart].
func apart(b stint.Bound, i, of int, bind func(name string, limits ...stint.Limit) (stint.Bound, error)) (stint.Bound, error) {
	if of == 1 {
		return b, nil
	}
	return Apart(b, i, bind)
}

// Limit returns limit i on its own, in the shared store.
func (p *Pair) Limit(i int) stint.Bound { return p.each[i].main }

// Warm charges the local store with what the shared one has let through, limit by limit, at most up
// to this process's share.
func (p *Pair) Warm(key string, units int64) {
	if units == 0 || p.Local == nil {
		return
	}
	for i := range p.each {
		p.each[i].warm(key, units)
	}
}

// Refund gives back in the local store what the shared one has refunded.
func (p *Pair) Refund(key string, units int64) {
	if units == 0 || p.Local == nil {
		return
	}
	for _, one := range p.each {
		_, _ = p.failover.local.Refund(context.Background(), []stint.Layer{{Bound: one.local, Key: key}}, units) // without it, the local store denies too much
	}
}

// Excusable reports whether what is open may have excused a denial, which is not counted then: its
// retry after is at most [meter.ExcusedFor]. Decisions do not say it exactly.
func Excusable(d *stint.Decision) bool {
	return !d.Allowed && d.RetryAfter != stint.Never && d.RetryAfter <= stint.Wait(meter.ExcusedFor)
}

// Owe notes what the local store has charged because the shared one failed with the error why, so
// that it is charged there later. If the request passed, every limit is charged, otherwise those
// that count denied requests. Nothing is noted if the shared store may have charged it; what it
// may have reserved is cancelled ([Failover.Lost]).
func (p *Pair) Owe(why error, key string, units int64, passed bool) {
	var lost *stint.LostReservation
	if units == 0 || p.Local == nil || errors.Is(why, stint.ErrAmbiguous) && !(passed && errors.As(why, &lost)) {
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
