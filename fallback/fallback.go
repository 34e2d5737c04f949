// Package fallback answers when the store that several processes share cannot.
//
//	store := fallback.New(shared, fallback.Options{Nodes: 3})
//	limiter, err := stint.NewLimiter(store, "test", limits...)
//
// A [Store] asks the shared store first. While that store fails, the [Mode] says what becomes of
// requests: a local store decides (the default), all pass, or all are denied. The local store is
// kept warm, so that a failure grants no fresh burst: it is charged with everything that the shared
// store lets through, and settles what that reserves. What the local store lets through in place of the shared one is owed, and is
// charged to the shared store once it answers again, as far as it still counts; a reservation at its
// cost, once that is settled or it has expired. For limits in
// flight, both stores count what runs, whichever let it in.
//
// # Guarantees
//
// Every call is answered as soon as the shared store has failed it. How soon that is depends on
// that store: a store of package redisstore fails a call when three quarters of the time that its
// context leaves are up. A call is charged to the shared store at most once. A call that may have
// been charged there ([stint.ErrAmbiguous]) is decided locally and not owed; a reservation
// ([stint.LostReservation]) is cancelled there, and owed.
//
// While the shared store is gone, n processes with Nodes: n, or SetNodes(n), together let through
// at most what the limit does, plus one unit a process and limit where a share is rounded up to
// one. With Nodes too low, more processes each let through a larger share. Around a failure the
// envelopes of the shared store and of the local ones add up to at most twice the limit's.
//
// # Price
//
// Some hundred nanoseconds a decision, and an allocation or two, for the local charge: nothing
// beside a round trip. Memory as the local store's, and some two hundred bytes for each key that
// owes something.
//
// # Concurrency
//
// A Store may be used from many goroutines at once. While something is owed it runs one goroutine;
// Close ends it.
package fallback

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// A Mode says what becomes of requests that the shared store cannot decide.
type Mode uint8

const (
	// Local lets a store in this process decide.
	Local Mode = iota
	// Open lets every request pass.
	Open
	// Closed denies every request, with [ClosedFor] as the time to retry after.
	Closed
)

// Options say how a Store falls back. The zero value suits a single process.
type Options struct {
	// Mode says what happens while the shared store fails. The default value is Local.
	Mode Mode
	// Local decides while the shared store fails. The Store closes it. The default is a memstore
	// with the defaults of its options.
	Local stint.Store
	// Nodes is how many processes share the limits: Local holds each limit to this process's
	// [Share]. [Store.SetNodes] changes it. The default value is 1.
	Nodes int
	// MaxOwed is the most keys whose debts are remembered. Units of further keys are forgiven, and
	// counted in Stats.Forgiven. The default value is 65,536.
	MaxOwed int
	// PostByCaller leaves it to callers of [Store.Post] to charge debts, instead of a goroutine. It
	// is for simulations on virtual time. The default value is false.
	PostByCaller bool
	// OnChange is called with the error when the shared store begins to fail, and with nil when it
	// answers again; see [Caching]. It runs in the goroutine whose call found that out, and must
	// not block. Optional.
	OnChange func(error)
}

// Stats is what a Store has done.
type Stats struct {
	// Degraded reports whether the last decision was made without the shared
	// store.
	Degraded bool
	// Failed is how many decisions the shared store could not make.
	Failed uint64
	// Owing is how many debts there are: keys, each under one limit, that owe something.
	Owing int
	// Posted is how many owed units have been charged to the shared store, and Forgiven how many
	// were dropped because too many keys owed.
	Posted, Forgiven uint64
}

// A Store is a [stint.Store] in front of a shared one. It decides in its place while that fails.
type Store struct {
	main, local stint.Store
	mode        Mode
	failover    *Failover
	room        *inflight.Room // nil if main has no limits in flight
	closed      atomic.Bool
}

var _ stint.Store = (*Store)(nil)

// New returns a Store in front of the store shared, and closes shared when it is closed.
func New(shared stint.Store, o Options) *Store {
	if o.Local == nil {
		o.Local = memstore.New(memstore.Options{})
	}
	s := &Store{main: shared, local: o.Local, mode: o.Mode, failover: NewFailover(shared, o)}
	s.room = s.newRoom()
	return s
}

// Post charges the shared store with what is owed, and stops where that fails. It is for
// Options.PostByCaller, and may be called from one goroutine at a time.
func (s *Store) Post() { s.failover.debts.round() }

// SetNodes sets the number of processes that share the limits, in place of
// Options.Nodes; see [Shares.SetNodes]. A shared store that counts them calls it:
//
//	shared.CountNodes(func(n int) { _ = store.SetNodes(n) })
func (s *Store) SetNodes(n int) error { return s.failover.SetNodes(n) }

// RoomFor reports whether a limit that requests bring may be added, as the local store does;
// see [stint.Limiter.With].
func (s *Store) RoomFor(name string, l stint.Limit) error {
	if local, ok := s.local.(interface {
		RoomFor(name string, l stint.Limit) error
	}); ok {
		return local.RoomFor(name, l)
	}
	return nil
}

// ClosedFor is the RetryAfter of a denial in mode Closed: long enough to spare the store, short
// enough to notice that it is back.
const ClosedFor = stint.Wait(time.Second)

// Stats returns what the store has done.
func (s *Store) Stats() Stats { return s.failover.Stats() }

// Decide implements [stint.Store].
func (s *Store) Decide(ctx context.Context, op meter.Op, layers []stint.Layer, cost int64) (stint.Decision, error) {
	main, local, err := s.split(layers)
	if err != nil {
		return stint.Decision{}, err
	}
	d := stint.Decision{}
	if err = unsettled(layers); err == nil {
		d, err = s.main.Decide(ctx, op, main, cost)
	}
	if err == nil {
		s.failover.Answered()
		s.warm(layers, d.Taken)
		return d, nil
	}
	if !s.fails(ctx, err) {
		return d, err
	}
	why := err
	d, err = s.instead(layers, func() (stint.Decision, error) {
		return s.local.Decide(context.WithoutCancel(ctx), op, local, cost)
	})
	s.owe(why, layers, s.charged(op, &d, cost, err), d.Allowed)
	return d, err
}

// instead answers a call that the shared store has failed.
func (s *Store) instead(layers []stint.Layer, local func() (stint.Decision, error)) (d stint.Decision, err error) {
	switch s.mode {
	case Open:
		d = stint.Decision{Allowed: true, Tightest: -1}
	case Closed:
		d = stint.Decision{RetryAfter: ClosedFor, Tightest: -1}
	default:
		return local()
	}
	for _, l := range layers {
		for i := range l.Answers {
			l.Answers[i] = d
		}
	}
	return d, nil
}

// fails reports whether to decide in place of the shared store, after an error.
func (s *Store) fails(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !s.closed.Load() && s.failover.Fails(err)
}

// Refund implements [stint.Store]. While the shared store fails, nothing is refunded.
func (s *Store) Refund(ctx context.Context, layers []stint.Layer, cost int64) (stint.Decision, error) {
	main, _, err := s.split(layers)
	if err != nil {
		return stint.Decision{}, err
	}
	d, err := s.main.Refund(ctx, main, cost)
	if err == nil {
		for _, l := range layers {
			l.Bound.(*bound).pair.Refund(l.Key, units(cost, l.Weight))
		}
	}
	return d, err
}

// Reset implements [stint.Store]. It also drops what the keys owe.
func (s *Store) Reset(ctx context.Context, layers []stint.Layer) error {
	main, local, err := s.split(layers)
	if err != nil {
		return err
	}
	for _, l := range layers {
		l.Bound.(*bound).pair.Forget(l.Key)
	}
	return errors.Join(s.main.Reset(ctx, main), s.local.Reset(ctx, local))
}

// Block implements [stint.BlockStore], in both stores. While the shared store fails, the error
// says so, and the keys are banned in this process alone.
func (s *Store) Block(ctx context.Context, layers []stint.Layer, d time.Duration) error {
	main, local, err := s.split(layers)
	if err != nil {
		return err
	}
	shared, ok := s.main.(stint.BlockStore)
	here, both := s.local.(stint.BlockStore)
	if !ok || !both {
		return errors.New("fallback: one of the stores is no stint.BlockStore")
	}
	return errors.Join(shared.Block(ctx, main, d), here.Block(ctx, local, d))
}

// Close implements [stint.Store] and closes both stores. Debts that are not posted yet are lost.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.failover.Close()
	return errors.Join(s.main.Close(), s.local.Close())
}
