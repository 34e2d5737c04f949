// Package model is the reference that every store is compared with, decision by
// decision: each kind of limit written down as its definition reads, over
// rational numbers (math/big), with no arithmetic shared with the engine.
//
// Waits are not solved for. A retry_after is found by search, as the least wait
// after which the definition of the limit admits; remaining is found by search,
// as the greatest cost that it admits now. The price is speed: some tens of
// microseconds for a decision. Use it in tests only.
//
// Time is an argument: whole nanoseconds since the Unix epoch. It never runs
// back: every call decides at the greatest time that any call has given, 0 at
// first. Limits, keys and costs are taken to be valid; what the contract calls
// an error (a cost below 0, the same key under the same limit twice in one
// request) panics here.
//
// A Model may be used by one goroutine at a time.
package model

import (
	"fmt"
	"math/big"
)

// The kinds of limit, as they are named in the text of a limit. Token bucket
// and leaky bucket are "gcra", and "every D" is a "gcra" of 1 per D.
const (
	GCRA     = "gcra"
	Interval = "token_bucket_interval"
	Queue    = "leaky_queue"
	Fixed    = "fixed_window"
	Log      = "sliding_log"
	Counter  = "sliding_counter"
	Parts    = "sliding_buckets"
)

// Spec is a limit. It has no defaults: Burst and Parts are what the limit has
// after its text was read. Two limits are the same limit when their Specs are
// equal.
type Spec struct {
	Kind        string // one of the kinds above
	Count       int64  // units a period, at least 1
	Period      int64  // ns, at least 1; ignored when Calendar is set
	Burst       int64  // units; gcra, token_bucket_interval, leaky_queue
	Parts       int64  // sliding_buckets: parts of a period
	Relaxed     bool   // sliding_counter: one more
	CountDenied bool   // window kinds: a denied request is counted as if admitted
	Calendar    string // fixed_window: "", "day" or "month"
	Zone        string // IANA name of the zone of Calendar
}

// Layer is one of the limits that a request is held to, and the key that it is
// held to it on. State belongs to (Name, Key); Spec must be the one that Name
// has had since the last Change.
type Layer struct {
	Name string
	Spec Spec
	Key  string
}

// Answer is what a decision says. Durations are in nanoseconds, rounded up.
type Answer struct {
	Allowed    bool
	Limit      int64    // the most that could ever pass at one instant
	Remaining  int64    // requests of cost 1 that would pass now, after this decision
	RetryAfter *big.Int // 0 when allowed; nil means never
	ResetAfter *big.Int // until all keys are as if never seen
	Delay      *big.Int // until the caller may start; 0 but for leaky_queue
	DeniedBy   []int    // indexes of the layers that denied, in order
	Taken      int64    // TakeUpTo: how many it took; else 0
}

// Model holds the state of every key under every limit. The zero value is not
// ready; use New.
type Model struct {
	now    int64 // greatest time given so far
	states map[place]state
	held   map[int]*reservation
}

// place is where a state lives.
type place struct{ name, key string }

// New returns a Model at the Unix epoch in which no key was ever seen.
func New() *Model {
	return &Model{states: map[place]state{}, held: map[int]*reservation{}}
}

// Take charges cost to every layer if every layer admits it, else to none of
// them, those that count denied requests excepted.
func (m *Model) Take(t int64, layers []Layer, cost int64) Answer {
	now, states := m.begin(t, layers, cost)
	a, _ := take(now, states, cost)
	return a
}

// Peek tells what Take would decide, and the state as it stands. It changes
// nothing.
func (m *Model) Peek(t int64, layers []Layer, cost int64) Answer {
	now, states := m.begin(t, layers, cost)
	a := standing(now, states)
	if cost == 0 {
		return a
	}
	a.DeniedBy = deniers(now, states, cost)
	a.Allowed = len(a.DeniedBy) == 0
	if a.Allowed {
		a.Delay = longestDelay(now, states)
	} else {
		a.RetryAfter = longestWait(now, states, cost)
	}
	return a
}

// TakeUpTo takes the most that passes now, at most max. When nothing passes it
// is a denied Take of 1. With max 0 it is allowed and takes nothing.
func (m *Model) TakeUpTo(t int64, layers []Layer, max int64) Answer {
	now, states := m.begin(t, layers, max)
	n := min(max, standing(now, states).Remaining)
	if n == 0 && max > 0 {
		a, _ := take(now, states, 1)
		return a
	}
	a, _ := take(now, states, n)
	a.Taken = n
	return a
}

// Admits says whether Take would pass, and no more: Peek also searches for the
// waits.
func (m *Model) Admits(t int64, layers []Layer, cost int64) bool {
	now, states := m.begin(t, layers, cost)
	return len(deniers(now, states, cost)) == 0
}

// Charge charges cost to every layer, room or not, as a settled debt does. It
// replays what was decided elsewhere.
func (m *Model) Charge(t int64, layers []Layer, cost int64) {
	now, states := m.begin(t, layers, cost)
	for _, s := range states {
		s.charge(now, cost)
	}
}

// Refund removes up to cost, newest first, from what still counts in every
// layer.
func (m *Model) Refund(t int64, layers []Layer, cost int64) Answer {
	now, states := m.begin(t, layers, cost)
	for _, s := range states {
		s.refund(now, cost)
	}
	return standing(now, states)
}

// Reset forgets the key of every layer. A reservation that charged one of them
// is dead from then on: settling it changes nothing, in any layer.
func (m *Model) Reset(t int64, layers []Layer) {
	m.clock(t)
	for _, l := range layers {
		delete(m.states, place{l.Name, l.Key})
		m.killReservations(place{l.Name, l.Key})
	}
}

// begin moves the clock and finds the state of every layer.
func (m *Model) begin(t int64, layers []Layer, cost int64) (now *big.Int, states []state) {
	if cost < 0 {
		panic(fmt.Sprintf("model: cost %d below 0", cost))
	}
	now = m.clock(t)
	seen := map[place]bool{}
	for _, l := range layers {
		p := place{l.Name, l.Key}
		if seen[p] {
			panic(fmt.Sprintf("model: %q under %q twice in one request", l.Key, l.Name))
		}
		seen[p] = true
		states = append(states, m.state(l))
	}
	return now, states
}

// clock returns the time at which a call that gives t decides.
func (m *Model) clock(t int64) *big.Int {
	m.now = max(m.now, t)
	return big.NewInt(m.now)
}

// state returns the state of a layer's key, a fresh one when it is unseen.
func (m *Model) state(l Layer) state {
	p := place{l.Name, l.Key}
	s := m.states[p]
	if s == nil {
		s = fresh(l.Spec)
		m.states[p] = s
	}
	if s.limitOf() != l.Spec {
		panic(fmt.Sprintf("model: the limit of %q changed from %+v to %+v without Change", l.Name, s.limitOf(), l.Spec))
	}
	return s
}

// take is Take over states. The receipts are those of an allowed take.
func take(now *big.Int, states []state, cost int64) (Answer, []receipt) {
	denied := deniers(now, states, cost)
	if len(denied) > 0 {
		for _, s := range states {
			if s.limitOf().CountDenied {
				s.charge(now, cost)
			}
		}
		a := standing(now, states)
		a.Allowed = false
		a.DeniedBy = denied
		a.RetryAfter = longestWait(now, states, cost)
		return a, nil
	}
	delay := new(big.Int)
	if cost > 0 {
		delay = longestDelay(now, states)
	}
	var receipts []receipt
	for _, s := range states {
		receipts = append(receipts, s.charge(now, cost))
	}
	a := standing(now, states)
	a.Delay = delay
	return a, receipts
}

// deniers returns the indexes of the states that do not admit cost now.
func deniers(now *big.Int, states []state, cost int64) []int {
	if cost == 0 {
		return nil
	}
	var denied []int
	for i, s := range states {
		if !s.admits(now, cost) {
			denied = append(denied, i)
		}
	}
	return denied
}

// standing is the answer that describes the states as they stand: allowed, with
// no wait.
func standing(now *big.Int, states []state) Answer {
	a := Answer{Allowed: true, RetryAfter: new(big.Int), ResetAfter: new(big.Int), Delay: new(big.Int)}
	for i, s := range states {
		left := remaining(s, now)
		if i == 0 || left < a.Remaining {
			a.Remaining, a.Limit = left, s.most()
		}
		if r := s.resetAfter(now); r.Cmp(a.ResetAfter) > 0 {
			a.ResetAfter = r
		}
	}
	return a
}

// longestWait is the longest of the states' least waits; nil when one says
// never.
func longestWait(now *big.Int, states []state, cost int64) *big.Int {
	longest := new(big.Int)
	for _, s := range states {
		w := leastWait(s, now, cost)
		if w == nil {
			return nil
		}
		if w.Cmp(longest) > 0 {
			longest = w
		}
	}
	return longest
}

// longestDelay is the longest time that one of the states would hold an
// admitted request back.
func longestDelay(now *big.Int, states []state) *big.Int {
	longest := new(big.Int)
	for _, s := range states {
		if d := s.delay(now); d.Cmp(longest) > 0 {
			longest = d
		}
	}
	return longest
}
