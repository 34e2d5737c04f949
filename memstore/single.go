package memstore

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A Single is one limit without keys, for a whole process: the shortest way
// from a limit to an answer, and what takes the place of a Limiter of
// golang.org/x/time/rate; docs/MOVING.md has each of its methods. [NewSingle] makes
// one: the zero value cannot be used.
//
// Price: one clock read and one compare-and-swap, without a lock, for gcra and
// leaky_queue where the period divides evenly by the count; other limits, and
// these while reservations are open, take a mutex. Nothing is allocated, but for
// a growing log and for reservations. It takes 1 kB; with another limit, a reservation
// or a waiter 3 kB, and with a log 10 kB: for many of them use a [Store] and keys. A Single may be used from many goroutines
// at once.
type Single struct {
	terms   atomic.Pointer[singleTerms]
	word    atomic.Uint64 // the state of lock-free terms, or inStore
	limiter *stint.Limiter

	mu    sync.Mutex // held by who decides by the store
	bound *bound     // of the store, to which the state goes for that; nil until then
	store Store      // of one key; its clock is ours
}

// A singleTerms is a limit in force. It does not change.
type singleTerms struct {
	limit    stint.Limit
	meter    *meter.Meter
	verdict  verdict
	lockFree bool
	drain    uint64 // from full to empty, in ns, if lockFree
}

// A verdict is what takes the place of the limit.
type verdict uint8

const (
	byLimit verdict = iota
	unlimited
	blocked
)

// inStore is the word while the state is in the store. No state has this value: it is
// beyond all time.
const inStore = math.MaxUint64

// SingleOptions are for a [Single]. The zero value suits most programs.
type SingleOptions struct {
	// Now returns the time in nanoseconds since the Unix epoch, for tests. It
	// may not go back. The default is the machine's clock, which testing/synctest
	// replaces.
	Now func() int64
	// CoarseClock reads the clock a few thousand times a second in a goroutine,
	// which Close ends, and not at each decision: for machines on which reading
	// it costs more than deciding. See [Options.CoarseClock]. The default value is
	// false.
	CoarseClock bool
}

// NewSingle returns a limiter of that limit. The error says why it cannot be
// held.
func NewSingle(limit stint.Limit, o SingleOptions) (*Single, error) {
	f, err := newSingleTerms(limit)
	if err != nil {
		return nil, err
	}
	s := new(Single)
	if s.terms.Store(f); !f.lockFree {
		s.word.Store(inStore)
	}
	s.store.clock.init(o.Now)
	if s.limiter, err = stint.NewLimiter(singleStore{s}, "single", limit); err != nil {
		return nil, err
	}
	if o.CoarseClock {
		s.store.clock.coarsen()
	}
	return s, nil
}

func newSingleTerms(limit stint.Limit) (*singleTerms, error) {
	m, err := limit.Meter()
	if err != nil {
		return nil, err
	}
	f := &singleTerms{limit: limit, meter: m, lockFree: m.Words() == 1 && limit.Ban() == 0}
	if f.lockFree { // one unit takes a whole number of nanoseconds
		f.drain = uint64(limit.Capacity()) * uint64(int64(limit.Period())/limit.Count())
	}
	return f, nil
}

// Allow takes one unit and reports whether it passed.
func (s *Single) Allow() bool { return s.AllowN(1) }

// AllowN takes cost units, all or none, and reports whether they passed. A cost
// below zero never passes.
func (s *Single) AllowN(cost int64) bool {
	f := s.terms.Load()
	if !f.lockFree || f.verdict != byLimit || cost < 0 {
		return s.allowSlow(f, cost)
	}
	before := s.word.Load() // what look does, where there is no call for it
	now := s.store.clock.now()
	if old := s.word.Load(); old == before && old != inStore && s.terms.Load() == f {
		next, ok := f.meter.TakeWord(old, now, cost)
		if next == old || s.word.CompareAndSwap(old, next) {
			return ok
		}
	}
	return s.allowAgain(cost)
}

// allowAgain is AllowN where others take at the same time, or change the limit.
func (s *Single) allowAgain(cost int64) bool {
	for {
		f := s.terms.Load()
		if !f.lockFree || f.verdict != byLimit {
			return s.allowSlow(f, cost)
		}
		old, now, sure := s.read(f)
		if old == inStore {
			return s.allowSlow(f, cost)
		}
		if s.terms.Load() != f {
			continue // the state may be one of another limit
		}
		next, ok := f.meter.TakeWord(old, now, cost)
		if next != old && s.word.CompareAndSwap(old, next) || next == old && (ok || sure) {
			return ok
		}
	}
}

func (s *Single) allowSlow(f *singleTerms, cost int64) bool {
	if f.verdict != byLimit || cost < 0 {
		return cost >= 0 && f.verdict == unlimited
	}
	f = s.enter()
	defer s.leave()
	if f.verdict != byLimit {
		return f.verdict == unlimited
	}
	ok, _ := s.bound.Allow(context.Background(), "", cost) // the store is never closed
	return ok
}

// Take takes cost units, all or none, and gives the whole answer. The error is
// [stint.ErrCost] for a cost below zero.
func (s *Single) Take(cost int64) (d stint.Decision, err error) {
	if cost < 0 {
		return d, stint.ErrCost
	}
	for {
		f := s.terms.Load()
		if f.verdict != byLimit {
			return f.verdict.answer(cost), nil
		}
		old, now, sure := s.read(f)
		if old == inStore {
			return s.decide(meter.OpTake, cost)
		}
		if s.terms.Load() != f {
			continue // the state may be one of another limit
		}
		after, a, ok := f.meter.DecideWord(old, now, cost)
		d.Set(f.meter, a, ok, cost)
		if after != old && s.word.CompareAndSwap(old, after) || after == old && (d.Allowed || sure) {
			return d, nil
		}
	}
}

// Peek says whether a Take of cost would pass, and changes nothing.
func (s *Single) Peek(cost int64) (stint.Decision, error) {
	return s.decide(meter.OpPeek, cost)
}

// Wait waits until cost units pass, and charges them then. The waiters are
// served first come first served; errors, deadlines and what giving up leaves
// are as [stint.Limiter.Wait] says. While nothing may pass, it fails at once.
func (s *Single) Wait(ctx context.Context, cost int64) error { return s.limiter.Wait(ctx, "", cost) }

// Reserve takes cost units now, to be settled at their true cost within ttl; the
// reservation is nil when denied, and where there is no limit to charge. The
// error is [stint.ErrFull] while 65,536 are open.
func (s *Single) Reserve(cost int64, ttl time.Duration) (stint.Decision, *stint.Reservation, error) {
	return s.limiter.Reserve(context.Background(), "", cost, ttl)
}

// WaitReserve is Wait with a reservation, to be settled within ttl of the moment
// it returns.
func (s *Single) WaitReserve(ctx context.Context, cost int64, ttl time.Duration) (*stint.Reservation, error) {
	return s.limiter.WaitReserve(ctx, "", cost, ttl)
}

// SetLimit puts another limit in force, also in place of SetUnlimited and
// SetBlocked, for those that wait too. What has been used counts as
// docs/SEMANTICS.md says of changes. The error says why the limit cannot be held: the
// one before stays.
func (s *Single) SetLimit(limit stint.Limit) error {
	f, err := newSingleTerms(limit)
	if err != nil {
		return err
	}
	s.enter()
	if err = s.bound.Change(limit); err == nil {
		s.terms.Store(f)
	}
	s.leave()
	s.store.watchers.everywhere()
	return err
}

// SetUnlimited lets everything pass from now on, and charges nothing.
func (s *Single) SetUnlimited() { s.setVerdict(unlimited) }

// SetBlocked lets nothing pass from now on, and charges nothing.
func (s *Single) SetBlocked() { s.setVerdict(blocked) }

func (s *Single) setVerdict(v verdict) {
	f := *s.enter()
	f.verdict = v
	s.terms.Store(&f)
	s.leave()
	s.store.watchers.everywhere()
}

// Limit returns the limit that is in force, or was last.
func (s *Single) Limit() stint.Limit { return s.terms.Load().limit }

// Close ends the goroutine of a coarse clock. The Single goes on, and reads the
// clock at each decision.
func (s *Single) Close() { s.store.clock.stop() }

// answer is the decision of a verdict.
func (v verdict) answer(cost int64) stint.Decision {
	if v == blocked {
		return stint.Decision{RetryAfter: stint.Never, Tightest: -1}
	}
	return stint.Decision{Allowed: true, Limit: math.MaxInt64, Remaining: math.MaxInt64, Taken: cost, Tightest: -1}
}

// read returns the state and a time to decide at, which was read before it, so
// that little time is left for others to change the state meanwhile.
//
// If sure, it was the state at that time. Else others have taken since the
// clock was read: what passes at that time passes now, since a bucket only
// drains meanwhile, but a denial may be one for what they took, and has to be
// made again. Where the state lies further ahead than a full bucket, the caller
// stood still for so long that the time is of no use.
func (s *Single) read(f *singleTerms) (state uint64, now int64, sure bool) {
	for {
		before := s.word.Load()
		now = s.store.clock.now()
		state = s.word.Load()
		if state == before {
			return state, now, true
		}
		if state == inStore || now >= 0 && state <= uint64(now)+f.drain {
			return state, now, false
		}
	}
}

// enter locks, moves the state to the store, and returns the terms in force. leave
// moves it back.
func (s *Single) enter() *singleTerms {
	s.mu.Lock()
	f := s.terms.Load()
	if s.bound == nil {
		s.store.init(Options{MaxKeys: keysPerShard, MaxBytes: math.MaxInt64, MaxLog: math.MaxInt64, MaxReservations: mostSingleReservations})
		s.store.mu.Lock()
		limits := s.store.limits("single", []stint.Limit{f.limit}, []*meter.Meter{f.meter})
		s.bound = s.store.bound(s.store.names["single"], newView(limits, limits))
		s.store.mu.Unlock()
	}
	if s.word.Load() != inStore { // only leave moves it back
		s.setState(s.word.Swap(inStore))
	}
	return f
}

// mostSingleReservations is how many reservations of a Single may be open. As many that
// were settled are remembered beside them.
const mostSingleReservations = 65_536

// setState gives the key in the store a state of one word, which has the numbers of the
// limit in force. The lock is held.
func (s *Single) setState(word uint64) {
	sh := &s.store.shards[0]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := s.bound.view.Load().only
	t := sh.table(l.account)
	h := s.store.seed.hash("")
	slot := t.find(h)
	if slot == nil && word > 0 {
		slot = t.insert(sh, h, 0)
	}
	if slot != nil {
		t.shape().fill(slot, []uint64{word}, l.number)
	}
}

// leave moves the state back to the word, where it is one and has the numbers of the
// limit in force, and unlocks.
func (s *Single) leave() {
	defer s.mu.Unlock()
	if !s.terms.Load().lockFree {
		return
	}
	a := s.bound.view.Load().only.account
	t := a.tables[0]
	if t != nil && t.open > 0 {
		s.store.reservations.count(&s.store) // lets go of those that have expired
	}
	if t != nil && t.numbered {
		s.store.mu.Lock()
		s.store.releaseSome(len(s.store.list), true) // of limits that were in force before
		s.store.mu.Unlock()
	}
	switch t = a.tables[0]; {
	case t == nil:
		s.word.Store(0)
	case t.plain():
		word := uint64(0)
		if slot := t.find(s.store.seed.hash("")); slot != nil {
			word = slot[0]
		}
		s.word.Store(word)
	}
}
