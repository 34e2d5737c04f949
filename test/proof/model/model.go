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
	"slices"
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

// Spec is a limit. Burst and Parts have no defaults: they are what the limit has after
// its text was read.
type Spec struct {
	Kind        string // one of the kinds above
	Count       int64  // units a period, at least 1
	Period      int64  // ns, at least 1; ignored when Calendar is set
	Burst       int64  // units; gcra, token_bucket_interval, leaky_queue
	Debt        int64  // the most units below empty, of those with a burst; 0 is one more drain
	Parts       int64  // sliding_buckets: parts of a period
	Ban         int64  // ns that a denial bans the key for; 0 for not at all
	Relaxed     bool   // sliding_counter: one more
	CountDenied bool   // window kinds: a denied request is counted as if admitted
	FromFirst   bool   // fixed_window: a window begins with a key's first request
	Calendar    string // fixed_window: "", or the unit: see calendarOf
	Zone        string // IANA name of the zone of Calendar
}

// Layer is one of the limits that a request is held to, and the key that it is
// held to it on. State belongs to the name, what identifies the limit, and the key.
type Layer struct {
	Name   string
	ID     string // the limit's own name; "" for none
	Spec   Spec
	Key    string
	Weight int64 // units of this limit to one of the request; 0 means 1
	// Excuses is how many ns what Reserve takes excuses denials while it is open.
	Excuses int64
}

// Answer is what a decision says, in units of the request. Durations are in
// nanoseconds, rounded up.
type Answer struct {
	Allowed    bool
	Limit      int64    // the most that could ever pass at one instant
	Remaining  int64    // requests of cost 1 that would pass now, after this decision
	Tightest   int      // index of the layer with the least remaining, the first of equals
	RetryAfter *big.Int // 0 when allowed; nil means never
	ResetAfter *big.Int // until all keys are as if never seen
	Delay      *big.Int // until the caller may start; 0 but for leaky_queue
	DeniedBy   []int    // indexes of the layers that denied, in order
	Banned     bool     // a ban is among the reasons
	Taken      int64    // TakeUpTo: how many it took; else 0
	Alone      []Answer // what each limit says by itself, in its own units
}

// Model holds the state of every key under every limit. The zero value is not
// ready; use New.
type Model struct {
	// Quantum is what the clock goes by, in ns: what is in use under other numbers is
	// rounded up to parts of it. 0 is 1.
	Quantum int64

	now    int64 // greatest time given so far
	states map[place]state
	bans   map[place]*ban
	held   map[int]*reservation
	live   []*reservation // those that may be open
}

// New returns a Model at the Unix epoch in which no key was ever seen.
func New() *Model {
	return &Model{states: map[place]state{}, bans: map[place]*ban{}, held: map[int]*reservation{}}
}

// Take charges cost to every layer if every layer admits it, else to none of
// them, those that count denied requests excepted.
func (m *Model) Take(t int64, layers []Layer, cost int64) Answer {
	now, parts := m.begin(t, layers, cost)
	a, _ := m.take(now, parts, cost)
	return a
}

// Peek returns what Take would decide, and the state as it stands. It changes
// nothing.
func (m *Model) Peek(t int64, layers []Layer, cost int64) Answer {
	now, parts := m.begin(t, layers, cost)
	denied := deniers(now, parts, cost)
	a := standing(now, parts)
	if len(denied) > 0 {
		a.deny(now, parts, denied, m.excuses(now, parts, denied, cost), cost)
	} else if cost > 0 {
		a.hold(m.delays(now, parts))
	}
	return a
}

// TakeUpTo takes the most that passes now, at most max. When nothing passes it
// is a denied Take of 1. With max 0 it is allowed and takes nothing.
func (m *Model) TakeUpTo(t int64, layers []Layer, max int64) Answer {
	now, parts := m.begin(t, layers, max)
	n := min(max, standing(now, parts).Remaining)
	if n == 0 && max > 0 {
		a, _ := m.take(now, parts, 1)
		return a
	}
	a, _ := m.take(now, parts, n)
	a.Taken = n
	return a
}

// Admits says whether Take would pass, and no more: Peek also searches for the
// waits.
func (m *Model) Admits(t int64, layers []Layer, cost int64) bool {
	now, parts := m.begin(t, layers, cost)
	return len(deniers(now, parts, cost)) == 0
}

// Charge charges cost to every layer, room or not, as a settled debt does. It
// replays what was decided elsewhere, under the numbers of the layers.
func (m *Model) Charge(t int64, layers []Layer, cost int64) {
	now, parts := m.begin(t, layers, cost)
	for _, p := range parts {
		m.charge(now, p, p.held(cost), true)
	}
}

// Refund removes up to cost, newest first, from what still counts in every
// layer.
func (m *Model) Refund(t int64, layers []Layer, cost int64) Answer {
	now, parts := m.begin(t, layers, cost)
	for _, p := range parts {
		p.own.refund(now, p.held(cost))
	}
	_, parts = m.begin(t, layers, cost)
	return standing(now, parts)
}

// Reset forgets the key of every layer. A reservation that charged one of them
// is dead from then on: settling it changes nothing, in any layer.
func (m *Model) Reset(t int64, layers []Layer) {
	m.clock(t)
	for _, l := range layers {
		delete(m.states, placeOf(l))
		delete(m.bans, placeOf(l))
		m.killReservations(placeOf(l))
	}
}

// begin moves the clock and finds the state of every layer.
func (m *Model) begin(t int64, layers []Layer, cost int64) (now *big.Int, parts []weighted) {
	if cost < 0 {
		panic(fmt.Sprintf("model: cost %d below 0", cost))
	}
	now = m.clock(t)
	for i, l := range layers {
		if l.Weight < 0 {
			panic(fmt.Sprintf("model: weight %d below 0", l.Weight))
		}
		if slices.ContainsFunc(layers[:i], func(o Layer) bool { return placeOf(o) == placeOf(l) }) {
			panic(fmt.Sprintf("model: %q under %q twice in one request", l.Key, l.Name))
		}
		p := weighted{layer: l, weight: big.NewInt(max(l.Weight, 1)), own: m.find(now, l)}
		p.see(now)
		p.bannedFor = m.banned(now, l)
		parts = append(parts, p)
	}
	return now, parts
}

// clock returns the time at which a call that gives t decides.
func (m *Model) clock(t int64) *big.Int {
	m.now = max(m.now, t)
	return big.NewInt(m.now)
}

// take is Take of a request. The receipts are those of an allowed take.
func (m *Model) take(now *big.Int, parts []weighted, cost int64) (Answer, []receipt) {
	if cost > 0 {
		for i := range parts {
			m.putInForce(now, &parts[i])
		}
	}
	denied := deniers(now, parts, cost)
	if len(denied) > 0 {
		excused := m.excuses(now, parts, denied, cost)
		for _, p := range parts {
			if p.layer.Spec.CountDenied && len(excused) < len(denied) {
				m.charge(now, p, p.held(cost), false)
			}
		}
		for _, i := range denied {
			if !slices.Contains(excused, i) {
				m.ban(now, &parts[i], cost)
			}
		}
		a := standing(now, parts)
		a.deny(now, parts, denied, excused, cost)
		return a, nil
	}
	waits := make([]*big.Int, len(parts))
	if cost > 0 {
		waits = m.delays(now, parts)
	}
	var receipts []receipt
	for _, p := range parts {
		receipts = append(receipts, m.charge(now, p, p.held(cost), true))
	}
	a := standing(now, parts)
	a.hold(waits)
	for i, p := range parts {
		a.Alone[i].Taken = p.held(cost)
	}
	return a, receipts
}

// putInForce has a decision put the numbers of its limit in force, unless more is
// in use than that has room for.
func (m *Model) putInForce(now *big.Int, p *weighted) {
	if !foreign(p.own, p.layer.Spec) || !drains(p.layer.Spec.Kind) {
		return
	}
	if s := m.adopt(p.own, p.layer.Spec, now); s != nil {
		p.own, p.state = s, s
		m.put(p.layer, s)
	}
}

// charge charges the state that a part has, by the numbers that it has.
func (m *Model) charge(now *big.Int, p weighted, units int64, told bool) receipt {
	if units == 0 {
		return receipt{at: now}
	}
	m.put(p.layer, p.own)
	return p.own.charge(now, units, charging{told: told, open: m.open(p.own, now)})
}

// deniers returns the indexes of the parts that do not admit cost now.
func deniers(now *big.Int, parts []weighted, cost int64) []int {
	if cost == 0 {
		return nil
	}
	var denied []int
	for i, p := range parts {
		if !p.passes(now, p.units(cost)) {
			denied = append(denied, i)
		}
	}
	return denied
}

// excuses returns the indexes of those denials that what is open excuses.
func (m *Model) excuses(now *big.Int, parts []weighted, denied []int, cost int64) (all []int) {
	for _, i := range denied {
		if m.excused(now, parts[i], cost) {
			all = append(all, i)
		}
	}
	return all
}

// standing is the answer that describes the parts as they stand: allowed, with
// no wait.
func standing(now *big.Int, parts []weighted) Answer {
	a := Answer{Allowed: true, RetryAfter: new(big.Int), ResetAfter: new(big.Int), Delay: new(big.Int)}
	for i, p := range parts {
		alone := Answer{Allowed: true, Limit: p.most(), Remaining: remaining(p.state, now),
			RetryAfter: new(big.Int), ResetAfter: most(p.resetAfter(now), p.bannedFor), Delay: new(big.Int)}
		if p.bannedFor.Sign() > 0 {
			alone.Remaining = 0
		}
		a.Alone = append(a.Alone, alone)
		if left := p.requests(now, alone.Remaining); i == 0 || left < a.Remaining {
			a.Remaining, a.Tightest = left, i
			a.Limit = floorDiv(big.NewInt(p.most()), p.weight).Int64()
		}
		a.ResetAfter = most(a.ResetAfter, alone.ResetAfter)
	}
	return a
}

// deny makes a standing answer that of a denial of cost by some parts: the
// longest of all least waits, nil when one is never, and for each that denied
// its own; of what is excused no more than a second.
func (a *Answer) deny(now *big.Int, parts []weighted, denied, excused []int, cost int64) {
	a.Allowed, a.DeniedBy, a.RetryAfter = false, denied, new(big.Int)
	for i, p := range parts {
		w := p.leastWait(now, p.units(cost))
		if w != nil && slices.Contains(excused, i) {
			w = least(w, big.NewInt(ExcusedFor))
		}
		if slices.Contains(denied, i) {
			alone := &a.Alone[i]
			alone.Allowed, alone.DeniedBy, alone.RetryAfter = false, []int{0}, w
			alone.Banned = p.bannedFor.Sign() > 0
			a.Banned = a.Banned || alone.Banned
		}
		if w == nil || a.RetryAfter == nil {
			a.RetryAfter = nil
			continue
		}
		a.RetryAfter = most(a.RetryAfter, w)
	}
}

// hold makes a standing answer that of a request which passes, and which each
// part holds back for so long; nil for not at all.
func (a *Answer) hold(waits []*big.Int) {
	for i, w := range waits {
		if w != nil {
			a.Alone[i].Delay = w
			a.Delay = most(a.Delay, w)
		}
	}
}

// delays is how long each part would hold an admitted request back.
func (m *Model) delays(now *big.Int, parts []weighted) (all []*big.Int) {
	for _, p := range parts {
		s := p.own
		if drains(p.layer.Spec.Kind) && foreign(s, p.layer.Spec) {
			s = m.adopt(s, p.layer.Spec, now)
		}
		all = append(all, s.delay(now))
	}
	return all
}
