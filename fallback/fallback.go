// Package fallback answers when the store that several processes share cannot.
//
//	store, err := fallback.New(shared, fallback.Options{Nodes: 3})
//	…
//	limiter, err := stint.NewLimiter(store, "test", limits...)
//
// A [Store] asks the shared store first. While that fails, the [Mode] says what
// becomes of requests: a local store decides (the default), all pass, or all
// are denied. The local store is kept warm: what the shared one lets through is
// charged to it as well, so that a failure grants no fresh burst. What it then
// lets through by itself is owed, and charged to the shared store once that
// answers again, as far as it still counts.
//
// # Guarantees
//
// Every call is answered as soon as the shared store has failed it; how soon
// that is, is for that store to bound. A call is charged to the shared store at
// most once: one that may have been charged there ([stint.ErrAmbiguous]) is
// decided locally and not owed.
//
// While the shared store is gone, n processes that were told Nodes: n, or have
// been by SetNodes, together let through at most what the limit does, plus one
// unit a process and limit where a share is rounded up to one. A process that
// was told too few lets through that much more. In the stretch around a failure
// the shared store's envelope and the local ones add up: at most twice the
// limit's.
//
// # Price
//
// Some hundred nanoseconds a decision, and an allocation or two, for the local
// charge: nothing beside a round trip. Memory as the local store's, and some
// two hundred bytes for each key that owes something.
//
// # Concurrency
//
// A Store may be used from many goroutines at once. It has one goroutine of its
// own, only while something is owed; Close ends it.
package fallback

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// A Mode says what becomes of requests that the shared store cannot decide.
type Mode uint8

const (
	// Local decides by a store in this process.
	Local Mode = iota
	// Open lets everything pass.
	Open
	// Closed denies everything, for a second.
	Closed
)

// Options say how a Store falls back. The zero value is good for one process.
type Options struct {
	// Mode is what to do while the shared store fails. The default value is
	// Local.
	Mode Mode
	// Local decides meanwhile. The Store closes it. The default is a memstore
	// with the defaults of its options.
	Local stint.Store
	// Nodes is how many processes share the limits: Local holds each limit to
	// its part of it; see [Share]. [Store.SetNodes] changes it. The default
	// value is 1.
	Nodes int
	// MaxOwed is the most keys that anything is remembered for that they owe;
	// what further ones take meanwhile is forgotten, and counted in
	// Stats.Forgiven. The default value is 65,536.
	MaxOwed int
	// PostByCaller leaves it to [Store.Post] to charge what is owed: no goroutine
	// does. It is for simulations, whose time is not the machine's. The default
	// value is false.
	PostByCaller bool
	// OnChange is told when the shared store begins to fail, with its error,
	// and with nil when it answers again. It is called from the goroutine that
	// finds out, and may not block. If nil, nothing is reported.
	OnChange func(error)
}

// Stats is what a Store has done.
type Stats struct {
	// Degraded reports whether the last decision was made without the shared
	// store.
	Degraded bool
	// Failed is how many decisions the shared store has failed.
	Failed uint64
	// Owing is how many keys, each under one limit, owe something.
	Owing int
	// Posted is how many units have been charged to the shared store
	// afterwards, and Forgiven how many units were not remembered.
	Posted, Forgiven uint64
}

// Store is a [stint.Store] that stands in for another while that fails.
type Store struct {
	main, local stint.Store
	mode        Mode
	shares      *Shares // of limits in local
	debts       *Debts
	changed     func(error)

	degraded atomic.Bool
	failed   atomic.Uint64
}

var _ stint.Store = (*Store)(nil)

// New returns a Store in front of a shared one, which it closes when it is
// closed.
func New(shared stint.Store, o Options) *Store {
	if o.Local == nil {
		o.Local = memstore.New(memstore.Options{})
	}
	s := &Store{
		main: shared, local: o.Local, mode: o.Mode, shares: NewShares(o.Local, o.Nodes),
		debts: NewDebts(shared, o.Local, o.MaxOwed), changed: o.OnChange,
	}
	s.debts.byCaller = o.PostByCaller
	return s
}

// Post charges the shared store with what is owed, and gives up where that fails.
// It is for Options.PostByCaller, from one goroutine at a time.
func (s *Store) Post() { s.debts.round() }

// SetNodes says that so many processes share the limits now, in place of
// Options.Nodes; see [Shares.SetNodes]. A shared store that counts them calls it:
//
//	shared.CountNodes(func(n int) { _ = store.SetNodes(n) })
func (s *Store) SetNodes(n int) error { return s.shares.SetNodes(n) }

// closedFor is when to come back to what is closed: long enough to spare the
// shared store, short enough to notice that it is back.
const closedFor = stint.Wait(time.Second)

// Stats returns what the store has done.
func (s *Store) Stats() Stats {
	st := Stats{Degraded: s.degraded.Load(), Failed: s.failed.Load()}
	st.Owing, st.Posted, st.Forgiven = s.debts.Stats()
	return st
}

// Decide implements [stint.Store].
func (s *Store) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	main, local, err := s.split(layers)
	if err != nil {
		return stint.Decision{}, err
	}
	d, err := s.main.Decide(ctx, op, main, cost)
	if err == nil {
		s.answered()
		s.warm(layers, d.Taken)
		return d, nil
	}
	if !s.fails(ctx, err) {
		return d, err
	}
	d, err, by := s.instead(err, func() (stint.Decision, error) {
		return s.local.Decide(context.WithoutCancel(ctx), op, local, cost)
	})
	if by {
		s.owe(layers, d.Taken)
	}
	return d, err
}

// instead answers what the shared store has failed with why; by reports
// whether what the local store has charged is owed.
func (s *Store) instead(why error, local func() (stint.Decision, error)) (d stint.Decision, err error, by bool) {
	switch s.mode {
	case Open:
		return stint.Decision{Allowed: true, Tightest: -1}, nil, false
	case Closed:
		return stint.Decision{RetryAfter: closedFor, Tightest: -1}, nil, false
	}
	d, err = local()
	return d, err, err == nil && !errors.Is(why, stint.ErrAmbiguous)
}

// fails reports whether an error is the shared store's failure, and not the
// caller's doing.
func (s *Store) fails(ctx context.Context, err error) bool {
	if ctx.Err() != nil || CallersFault(err) {
		return false
	}
	s.failed.Add(1)
	if s.degraded.CompareAndSwap(false, true) && s.changed != nil {
		s.changed(err)
	}
	return true
}

// CallersFault reports whether an error of a store says that the call was
// wrong, or the store was closed: nothing that another store would decide
// better.
func CallersFault(err error) bool {
	for _, theirs := range []error{stint.ErrCost, stint.ErrLayers, stint.ErrReservation, stint.ErrFull, stint.ErrClosed} {
		if errors.Is(err, theirs) {
			return true
		}
	}
	return false
}

// answered notes that the shared store is well.
func (s *Store) answered() {
	if s.degraded.Load() && s.degraded.CompareAndSwap(true, false) {
		s.debts.Wake()
		if s.changed != nil {
			s.changed(nil)
		}
	}
}

// Refund implements [stint.Store]. It is not done while the shared store fails.
func (s *Store) Refund(ctx context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	main, local, err := s.split(layers)
	if err != nil {
		return stint.Decision{}, err
	}
	d, err := s.main.Refund(ctx, main, cost)
	if err == nil {
		for i := range local {
			local[i].Answers = nil // they are the shared store's
		}
		_, _ = s.local.Refund(ctx, local, cost) // else it is held too tightly here while the shared store is gone
	}
	return d, err
}

// Reset implements [stint.Store]. What the keys owe is forgotten too.
func (s *Store) Reset(ctx context.Context, layers []stint.Layer) error {
	main, local, err := s.split(layers)
	if err != nil {
		return err
	}
	for _, l := range layers {
		for _, one := range l.Bound.(*bound).each {
			s.debts.Forget(one.main, l.Key)
		}
	}
	return errors.Join(s.main.Reset(ctx, main), s.local.Reset(ctx, local))
}

// Close implements [stint.Store]: it closes both stores. What is owed and not
// yet posted is lost.
func (s *Store) Close() error {
	s.debts.Close()
	return errors.Join(s.main.Close(), s.local.Close())
}
