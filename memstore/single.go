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
// golang.org/x/time/rate; docs/MOVING.md has each of its methods.
//
// Price: one clock read and one compare-and-swap, without a lock, for gcra and
// leaky_queue where the period divides evenly by the count; other limits, and
// these while reservations are open, take a mutex. Nothing is allocated, but for
// a growing log and for reservations. A Single may be used from many goroutines
// at once.
type Single struct {
	clock   clock
	terms   atomic.Pointer[singleTerms]
	word    atomic.Uint64 // the state of lock-free terms, or inState
	limiter *stint.Limiter

	mu      sync.Mutex   // guards what follows
	state   []uint64     // of other terms, and while word is inState
	numbers *meter.Meter // by which the state drains
	charges singleCharges
	others  map[string]otherState // by the limit's ID
}

// An otherState is what was used under a limit of another algorithm or period, which
// may be in force again.
type otherState struct {
	numbers *meter.Meter
	state   []uint64
}

// mostOthers is how many of these are remembered; of more, the one goes that would
// be as if never used the soonest.
const mostOthers = 64

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

// inState is the word while the state is in Single.state. No state has this
// value: it is beyond all time.
const inState = math.MaxUint64

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
	s := &Single{state: newState(f.meter), numbers: f.meter}
	if s.terms.Store(f); !f.lockFree {
		s.word.Store(inState)
	}
	s.clock.init(o.Now)
	if s.limiter, err = stint.NewLimiter(singleStore{s}, "single", limit); err != nil {
		return nil, err
	}
	if o.CoarseClock {
		s.clock.coarsen()
	}
	return s, nil
}

func newSingleTerms(limit stint.Limit) (*singleTerms, error) {
	m, err := limit.Meter()
	if err != nil {
		return nil, err
	}
	f := &singleTerms{limit: limit, meter: m, lockFree: m.Words() == 1}
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
	now := s.clock.now()
	if old := s.word.Load(); old == before && old != inState && s.terms.Load() == f {
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
		if old == inState {
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
	var d stint.Decision
	s.takeLocked(&d, cost)
	return d.Allowed
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
		if !f.lockFree {
			s.takeLocked(&d, cost)
			return d, nil
		}
		old, now, sure := s.read(f)
		if old == inState {
			s.takeLocked(&d, cost)
			return d, nil
		}
		if s.terms.Load() != f {
			continue // the state may be one of another limit
		}
		state := [1]uint64{old}
		a, ok := f.meter.Take(state[:], now, cost)
		d.Set(f.meter, a, ok, cost)
		if state[0] != old && s.word.CompareAndSwap(old, state[0]) || state[0] == old && (d.Allowed || sure) {
			return d, nil
		}
	}
}

// Peek says whether a Take of cost would pass, and changes nothing.
func (s *Single) Peek(cost int64) (stint.Decision, error) {
	return singleStore{s}.decide(meter.OpPeek, cost)
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
// docs/SEMANTICS.md says of changes; a reservation of a limit of another algorithm or
// period gives nothing back. The error says why the limit cannot be held: the one
// before stays.
func (s *Single) SetLimit(limit stint.Limit) error {
	f, err := newSingleTerms(limit)
	if err != nil {
		return err
	}
	s.mu.Lock()
	was := s.locked()
	now := s.ready(was, 0)
	if id := limit.ID(); id != was.limit.ID() {
		s.exchange(was.limit.ID(), id, f, now)
	}
	if s.numbers.SameNumbers(f.meter) {
		s.numbers = f.meter
	}
	s.word.Store(inState) // until release, also where the terms before had no word
	s.terms.Store(f)
	s.release(f)
	s.wakeWaiters()
	return nil
}

// exchange sets the state of an identity aside, and takes up that of another.
func (s *Single) exchange(from, to string, f *singleTerms, now int64) {
	if s.others == nil {
		s.others = make(map[string]otherState)
	}
	s.others[from] = otherState{s.numbers, s.state}
	soonest := ""
	for id, o := range s.others {
		left := func(o otherState) time.Duration { return o.numbers.Answer(o.state, now, 0, true).ResetAfter }
		if left(o) == 0 {
			delete(s.others, id)
		} else if soonest == "" || left(o) < left(s.others[soonest]) {
			soonest = id
		}
	}
	if len(s.others) > mostOthers {
		delete(s.others, soonest)
	}
	s.numbers, s.state = f.meter, newState(f.meter)
	if o, ok := s.others[to]; ok {
		s.numbers, s.state = o.numbers, o.state
		delete(s.others, to)
	}
	s.charges.forgo()
}

// newState returns a state with the words that a limit of the same algorithm, and
// other numbers, may need.
func newState(m *meter.Meter) []uint64 { return make([]uint64, max(m.Words(), 2)) }

// SetUnlimited lets everything pass from now on, and charges nothing.
func (s *Single) SetUnlimited() { s.setVerdict(unlimited) }

// SetBlocked lets nothing pass from now on, and charges nothing.
func (s *Single) SetBlocked() { s.setVerdict(blocked) }

func (s *Single) setVerdict(v verdict) {
	s.mu.Lock()
	f := *s.locked()
	f.verdict = v
	s.terms.Store(&f)
	s.release(&f)
	s.wakeWaiters()
}

// Limit returns the limit that is in force, or was last.
func (s *Single) Limit() stint.Limit { return s.terms.Load().limit }

// Close ends the goroutine of a coarse clock. The Single goes on, and reads the
// clock at each decision.
func (s *Single) Close() { s.clock.stop() }

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
		now = s.clock.now()
		state = s.word.Load()
		if state == before {
			return state, now, true
		}
		if state == inState || now >= 0 && state <= uint64(now)+f.drain {
			return state, now, false
		}
	}
}

// locked moves the state to where the holder of the lock works on it, and returns
// the terms in force.
func (s *Single) locked() *singleTerms {
	f := s.terms.Load()
	if f.lockFree {
		if word := s.word.Swap(inState); word != inState {
			s.state[0] = word
		}
	}
	return f
}

// release moves the state back and unlocks.
func (s *Single) release(f *singleTerms) {
	if f.lockFree && s.charges.open.Len() == 0 && s.numbers.SameNumbers(f.meter) {
		s.word.Store(s.state[0])
	}
	s.mu.Unlock()
}

func (s *Single) takeLocked(d *stint.Decision, cost int64) {
	s.mu.Lock()
	f := s.locked()
	defer s.release(f)
	if f.verdict != byLimit {
		*d = f.verdict.answer(cost)
		return
	}
	*d = s.take(f, s.ready(f, cost), cost)
}

// take decides with the lock held.
func (s *Single) take(f *singleTerms, now, cost int64) (d stint.Decision) {
	if cost > 0 {
		s.putInForce(f, now)
	}
	var a meter.Answer
	var ok bool
	if old := s.foreign(f, now); old != nil {
		a, ok = f.meter.Through(s.state, old, now, cost)
	} else {
		a, ok = f.meter.TakeAmong(&s.charges.open, s.state, now, cost)
	}
	d.Set(f.meter, a, ok, cost)
	return d
}

// foreign returns the meter by whose numbers the state drains, if they are others than
// those of the limit in force, else nil.
func (s *Single) foreign(f *singleTerms, now int64) *meter.Meter {
	if s.numbers.SameNumbers(f.meter) || s.numbers.Idle(s.state, now) {
		return nil
	}
	return s.numbers
}

// putInForce has a decision put the numbers of the limit in force, unless more is in
// use than they have room for.
func (s *Single) putInForce(f *singleTerms, now int64) {
	if !s.numbers.SameNumbers(f.meter) && f.meter.Adopt(s.state, s.numbers, now) {
		s.numbers = f.meter
		s.charges.forgo()
	}
}

// describe returns how the limit in force stands to a request that passes or not.
func (s *Single) describe(f *singleTerms, now, cost int64, passes bool) (d stint.Decision) {
	old := s.foreign(f, now)
	if old == nil {
		return describe(f.meter, s.mine(f), now, cost, passes)
	}
	a, _ := f.meter.Through(s.state, old, now, cost)
	if a.Delay = 0; passes { // whether it waits is for who decides
		a.RetryAfter = 0
	}
	d.Set(f.meter, a, passes, 0)
	return d
}

// mine returns the state, or where it drains by other numbers, and is idle, one that
// was never used.
func (s *Single) mine(f *singleTerms) []uint64 {
	if s.numbers.SameNumbers(f.meter) {
		return s.state
	}
	return newState(f.meter)
}

// ready makes room for a charge and returns the time to decide at.
func (s *Single) ready(f *singleTerms, cost int64) int64 {
	now := s.clock.now()
	s.charges.expire(now)
	if f.meter.Aligned() {
		now = s.clock.aligned(now)
	}
	if need := f.meter.Room(s.state, now, cost); need > len(s.state) {
		state := make([]uint64, roomy(need))
		f.meter.Move(state, s.state)
		s.state = state
	}
	return now
}
