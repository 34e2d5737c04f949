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

// A Single is one limit without keys, for a whole process. It replaces a Limiter of
// golang.org/x/time/rate; docs/MOVING.md has each method. [NewSingle] makes one: the
// zero value cannot be used. It may be used from many goroutines at once.
//
// Price: one clock read and one compare-and-swap, without a lock, for gcra and
// leaky_queue if the period divides evenly by the count. Other limits take a mutex, and
// so do these while reservations are open. Only reservations and a growing log allocate.
// A Single takes 1 kB; after a change of its limit, a reservation or a wait it takes
// 3 kB, and with a log 10 kB. For many keys use a [Store].
type Single struct {
	terms   atomic.Pointer[singleTerms]
	word    atomic.Uint64 // the state of lock-free terms, or inStore
	limiter *stint.Limiter

	mu    sync.Mutex // held while the state is in the store
	bound *bound     // in store; nil until the state goes there for the first time
	store Store      // has one key, and the clock of the Single

	divert atomic.Pointer[stint.Bound] // of singleBound.Divert
}

// A singleTerms is a limit in force. It does not change.
type singleTerms struct {
	limit    stint.Limit
	meter    *meter.Meter
	verdict  verdict
	lockFree bool
	drain    uint64      // from full to empty, in ns, if lockFree
	diverted stint.Bound // if not nil, it decides instead, and lockFree is false
}

// A verdict says whether the limit decides, or everything passes, or nothing.
type verdict uint8

const (
	byLimit verdict = iota
	unlimited
	blocked
)

// inStore is the word while the state is in the store. A state never has this value: it
// would be a time that no clock reaches.
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

// NewSingle returns a Single of that limit. The error says why the limit cannot be used.
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

// enforce puts terms in force. The lock is held.
func (s *Single) enforce(f *singleTerms) {
	s.terms.Store(f)
	s.redirect()
}

// redirect copies divert into the terms, so that decisions load one pointer.
func (s *Single) redirect() {
	for {
		f, to := s.terms.Load(), stint.Bound(nil)
		if p := s.divert.Load(); p != nil {
			to = *p
		}
		if f.diverted == to {
			return
		}
		next := *f
		next.diverted, next.lockFree = to, to == nil && lockFree(f.limit, f.meter)
		if s.terms.CompareAndSwap(f, &next) {
			return
		}
	}
}

// lockFree reports whether the whole state of a limit is one word.
func lockFree(limit stint.Limit, m *meter.Meter) bool { return m.Words() == 1 && limit.Ban() == 0 }

func newSingleTerms(limit stint.Limit) (*singleTerms, error) {
	m, err := limit.Meter()
	if err != nil {
		return nil, err
	}
	f := &singleTerms{limit: limit, meter: m, lockFree: lockFree(limit, m)}
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
	before := s.word.Load() // as read does, without the call
	now := s.store.clock.now()
	if old := s.word.Load(); old == before && old != inStore && s.terms.Load() == f {
		next, ok := f.meter.TakeWord(old, now, cost)
		if next == old || s.word.CompareAndSwap(old, next) {
			return ok
		}
	}
	return s.allowAgain(cost)
}

// allowAgain is AllowN after another goroutine took at the same time, or changed the limit.
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
	if f.diverted != nil {
		ok, _ := f.diverted.Allow(context.Background(), "", cost)
		return ok
	}
	f = s.enter()
	defer s.leave()
	if f.verdict != byLimit {
		return f.verdict == unlimited
	}
	ok, _ := s.bound.Allow(context.Background(), "", cost) // the store is never closed
	return ok
}

// Take takes cost units, all or none, and returns the whole decision. The error is
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
		if f.diverted != nil {
			return f.diverted.Decide(context.Background(), meter.OpTake, "", cost)
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
	if to := s.terms.Load().diverted; to != nil {
		return to.Decide(context.Background(), meter.OpPeek, "", cost)
	}
	return s.decide(meter.OpPeek, cost)
}

// Wait waits until cost units pass, and charges them then. Waiters are served first
// come first served. [stint.Limiter.Wait] describes the errors, deadlines, and what a
// waiter that gives up leaves behind. After SetBlocked, it fails at once.
func (s *Single) Wait(ctx context.Context, cost int64) error { return s.limiter.Wait(ctx, "", cost) }

// Reserve takes cost units now, to be settled at their true cost within ttl. The
// reservation is nil if the request is denied, and after SetUnlimited. The error
// matches [stint.ErrFull] while 65,536 reservations are open.
func (s *Single) Reserve(cost int64, ttl time.Duration) (stint.Decision, *stint.Reservation, error) {
	return s.limiter.Reserve(context.Background(), "", cost, ttl)
}

// WaitReserve is Wait with a reservation, to be settled within ttl of the moment
// it returns.
func (s *Single) WaitReserve(ctx context.Context, cost int64, ttl time.Duration) (*stint.Reservation, error) {
	return s.limiter.WaitReserve(ctx, "", cost, ttl)
}

// SetLimit puts another limit in force, also for callers that wait, and ends
// SetUnlimited and SetBlocked. What has been used counts as docs/SEMANTICS.md says of
// changes. The error says why the limit cannot be used: then the former limit stays.
func (s *Single) SetLimit(limit stint.Limit) error { return s.limiter.SetLimits(limit) }

// SetUnlimited lets everything pass from now on, and charges nothing.
func (s *Single) SetUnlimited() { s.setVerdict(unlimited) }

// SetBlocked lets nothing pass from now on, and charges nothing.
func (s *Single) SetBlocked() { s.setVerdict(blocked) }

func (s *Single) setVerdict(v verdict) {
	f := *s.enter()
	f.verdict = v
	s.enforce(&f)
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

// read returns the state and a time to decide at. It reads the clock first, so that
// others have little time to change the state before the compare-and-swap.
//
// sure says that the state did not change while the clock was read. Otherwise others
// have taken units in between. What passes at that time passes now, since a bucket only
// drains meanwhile, but a denial must be decided again: it may be due to units taken
// after that time. If the state is further ahead of the time than a full bucket, the
// caller stood still for so long that the time is useless, and read reads both again.
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
		s.bound = s.store.bound(s.store.names["single"], "", newView(limits, limits))
		s.store.mu.Unlock()
	}
	if s.word.Load() != inStore { // only leave moves it back
		s.setState(s.word.Swap(inStore))
	}
	return f
}

// mostSingleReservations is how many reservations of a Single may be open, and how many
// settled ones are remembered.
const mostSingleReservations = 65_536

// setState gives the key in the store a state of one word, which drains by the limit in
// force. The lock is held.
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

// leave moves the state back to the word, if it is one word that drains by the limit in
// force, and unlocks.
func (s *Single) leave() {
	defer s.mu.Unlock()
	if !s.terms.Load().lockFree {
		return
	}
	a := s.bound.view.Load().only.account
	t := a.in(0)
	if t != nil && t.open > 0 {
		s.store.reservations.count(&s.store) // releases expired reservations
	}
	if t != nil && t.numbered {
		s.store.mu.Lock()
		s.store.releaseSome(len(s.store.list), true) // releases limits that are in force no more
		s.store.mu.Unlock()
	}
	switch t = a.in(0); {
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
