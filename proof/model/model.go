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
// held to it on. State belongs to (Name, Key). The layers of a request that
// share both are a form of the name's limits; each has an ID of its own.
type Layer struct {
	Name   string
	ID     string // what the limit is known by under Name; "" where it is the only one
	Spec   Spec
	Key    string
	Weight int64 // units of this limit to one of the request; 0 means 1
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
	Taken      int64    // TakeUpTo: how many it took; else 0
	Alone      []Answer // what each limit says by itself, in its own units
}

// Model holds the state of every key under every limit. The zero value is not
// ready; use New.
type Model struct {
	// Quantum is what the clock goes by, in ns: what a form starts with is rounded
	// up to parts of it. 0 is 1.
	Quantum int64
	// Forgets has forms that have nothing left to count be forgotten when another one
	// is written, as a store must that does not know who holds which: a calendar's at
	// once, others once that one alone has decided for as long as any of them remembers.
	Forgets bool

	now      int64 // greatest time given so far
	families map[place]*family
	turns    int
	held     map[int]*reservation
	live     []*reservation // those that may be open
}

// place is where a state lives.
type place struct{ name, key string }

// New returns a Model at the Unix epoch in which no key was ever seen.
func New() *Model {
	return &Model{families: map[place]*family{}, held: map[int]*reservation{}}
}

// Take charges cost to every layer if every layer admits it, else to none of
// them, those that count denied requests excepted.
func (m *Model) Take(t int64, layers []Layer, cost int64) Answer {
	now, r := m.begin(t, layers, cost, cost > 0)
	a, _ := m.take(now, r, cost)
	return a
}

// Peek returns what Take would decide, and the state as it stands. It changes
// nothing.
func (m *Model) Peek(t int64, layers []Layer, cost int64) Answer {
	now, r := m.begin(t, layers, cost, false)
	denied := deniers(now, r.parts, cost)
	a := standing(now, r.parts)
	if len(denied) > 0 {
		a.deny(now, r.parts, denied, cost)
	} else if cost > 0 {
		a.hold(delays(now, r.parts))
	}
	return a
}

// TakeUpTo takes the most that passes now, at most max. When nothing passes it
// is a denied Take of 1. With max 0 it is allowed and takes nothing.
func (m *Model) TakeUpTo(t int64, layers []Layer, max int64) Answer {
	now, r := m.begin(t, layers, max, max > 0)
	n := min(max, standing(now, r.parts).Remaining)
	if n == 0 && max > 0 {
		a, _ := m.take(now, r, 1)
		return a
	}
	a, _ := m.take(now, r, n)
	a.Taken = n
	return a
}

// Admits says whether Take would pass, and no more: Peek also searches for the
// waits.
func (m *Model) Admits(t int64, layers []Layer, cost int64) bool {
	now, r := m.begin(t, layers, cost, false)
	return len(deniers(now, r.parts, cost)) == 0
}

// Charge charges cost to every layer, room or not, as a settled debt does. It
// replays what was decided elsewhere.
func (m *Model) Charge(t int64, layers []Layer, cost int64) {
	now, r := m.begin(t, layers, cost, cost > 0)
	for _, p := range r.parts {
		p.charge(now, p.held(cost), charging{told: true, open: p.open})
	}
	m.counted(now, r, func(i int) int64 { return r.parts[i].held(cost) }, false)
}

// Refund removes up to cost, newest first, from what still counts in every
// layer, and under the other forms of its name.
func (m *Model) Refund(t int64, layers []Layer, cost int64) Answer {
	now, r := m.begin(t, layers, cost, false)
	for _, a := range r.asked {
		if cost > 0 && m.alone(now, &a) {
			m.leave(now, &a)
		}
		units := a.units(func(i int) int64 { return r.parts[i].held(cost) })
		a.others(func(s state) { s.refund(now, units) })
		if a.family != nil {
			for i, h := range a.family.held {
				a.family.held[i].units = lessUpTo(h.units, big.NewInt(units))
			}
		}
		if cost > 0 {
			m.forget(now, &a)
		}
	}
	now, r = m.begin(t, layers, cost, false) // what an unseen form would start with is less now
	for _, a := range r.asked {
		if m.families[a.place] != nil && m.families[a.place].find(a.form) == a.form {
			for k, i := range a.layers {
				a.form.states[k].refund(now, r.parts[i].held(cost))
			}
		}
	}
	return standing(now, r.parts)
}

// Reset forgets the key of every layer. A reservation that charged one of them
// is dead from then on: settling it changes nothing, in any layer.
func (m *Model) Reset(t int64, layers []Layer) {
	m.clock(t)
	for _, l := range layers {
		delete(m.families, place{l.Name, l.Key})
		m.killReservations(place{l.Name, l.Key})
	}
}

// A request is the states of its layers, in order, and what they belong to.
type request struct {
	parts []weighted
	asked []asked
}

// begin moves the clock and finds the state of every layer. If it meets, forms
// that are new to their keys are known to them from then on.
func (m *Model) begin(t int64, layers []Layer, cost int64, meets bool) (now *big.Int, r request) {
	if cost < 0 {
		panic(fmt.Sprintf("model: cost %d below 0", cost))
	}
	now = m.clock(t)
	r = request{make([]weighted, len(layers)), m.arrange(now, layers, meets)}
	for _, a := range r.asked {
		for k, i := range a.layers {
			l := layers[i]
			if l.Weight < 0 {
				panic(fmt.Sprintf("model: weight %d below 0", l.Weight))
			}
			r.parts[i] = weighted{a.form.states[k], big.NewInt(max(l.Weight, 1)), m.open(a.place, a.form.states[k], now)}
		}
	}
	return now, r
}

// counted notes who has decided, and counts under the other forms of the keys
// what was charged, or what was denied.
func (m *Model) counted(now *big.Int, r request, units func(i int) int64, denied bool) {
	for k := range r.asked {
		a := &r.asked[k]
		if a.units(units) == 0 {
			continue
		}
		charged := !denied
		for _, l := range a.form.limits {
			charged = charged || l.spec.CountDenied
		}
		alone := m.alone(now, a)
		if charged {
			m.decided(now, a)
		}
		if charged || m.countsDenied(now, a) {
			m.forget(now, a)
		} else if m.Forgets {
			continue // what is forgotten counts no denial
		}
		if alone {
			m.leave(now, a)
		}
		a.elsewhere(now, units, denied)
	}
}

// clock returns the time at which a call that gives t decides.
func (m *Model) clock(t int64) *big.Int {
	m.now = max(m.now, t)
	return big.NewInt(m.now)
}

// take is Take of a request. The receipts are those of an allowed take.
func (m *Model) take(now *big.Int, r request, cost int64) (Answer, []receipt) {
	parts := r.parts
	units := func(i int) int64 { return parts[i].held(cost) }
	denied := deniers(now, parts, cost)
	if len(denied) > 0 {
		for i, p := range parts {
			if p.limitOf().CountDenied {
				p.charge(now, units(i), charging{open: p.open})
			}
		}
		a := standing(now, parts)
		a.deny(now, parts, denied, cost)
		m.counted(now, r, units, true)
		return a, nil
	}
	waits := make([]*big.Int, len(parts))
	if cost > 0 {
		waits = delays(now, parts)
	}
	var receipts []receipt
	for i, p := range parts {
		receipts = append(receipts, p.charge(now, units(i), charging{told: true, open: p.open}))
	}
	a := standing(now, parts)
	a.hold(waits)
	for i := range parts {
		a.Alone[i].Taken = units(i)
	}
	m.counted(now, r, units, false)
	return a, receipts
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

// standing is the answer that describes the parts as they stand: allowed, with
// no wait.
func standing(now *big.Int, parts []weighted) Answer {
	a := Answer{Allowed: true, RetryAfter: new(big.Int), ResetAfter: new(big.Int), Delay: new(big.Int)}
	for i, p := range parts {
		alone := Answer{Allowed: true, Limit: p.most(), Remaining: remaining(p.state, now),
			RetryAfter: new(big.Int), ResetAfter: p.resetAfter(now), Delay: new(big.Int)}
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
// its own.
func (a *Answer) deny(now *big.Int, parts []weighted, denied []int, cost int64) {
	a.Allowed, a.DeniedBy, a.RetryAfter = false, denied, new(big.Int)
	for i, p := range parts {
		w := p.leastWait(now, p.units(cost))
		if slices.Contains(denied, i) {
			alone := &a.Alone[i]
			alone.Allowed, alone.DeniedBy, alone.RetryAfter = false, []int{0}, w
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
func delays(now *big.Int, parts []weighted) (all []*big.Int) {
	for _, p := range parts {
		all = append(all, p.delay(now))
	}
	return all
}
