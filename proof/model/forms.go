package model

import (
	"fmt"
	"math/big"
	"slices"
)

// A family is what one key has done under one name. A name may have several
// forms: other numbers, another kind, period or calendar of a limit, or other
// limits. Every form that the key has met counts every request of it, each by
// its own rule; the form that is asked decides. Once none of several counts
// anything, the key is as if never seen.
type family struct {
	forms []*form  // in the order in which they decided last
	turn  int      // of the model, when the form that decided last changed; 0 for never
	held  []held   // what forms had in use that count the key no more
	alone *big.Int // from when on the form that decided last has done so alone for long enough
}

// A held is units that were in use under a limit whose form went because the key
// met too many. Until the moment at which they would no longer have counted, each
// form that is met starts with at least as many. A limit has at most four of them.
type held struct {
	id           string
	units, until *big.Int
}

// covers says whether another adds nothing to this one.
func (h held) covers(o held) bool {
	return h.id == o.id && h.units.Cmp(o.units) >= 0 && h.until.Cmp(o.until) >= 0
}

// hold adds what was in use. Of five of a limit, of the two that end first the
// greater units count until the later end.
func (f *family) hold(h held) {
	if slices.ContainsFunc(f.held, func(o held) bool { return o.covers(h) }) {
		return
	}
	f.held = append(slices.DeleteFunc(f.held, h.covers), h)
	var first, second, all int
	first, second = -1, -1
	for i, o := range f.held {
		switch {
		case o.id != h.id:
			continue
		case first < 0 || o.until.Cmp(f.held[first].until) < 0:
			first, second = i, first
		case second < 0 || o.until.Cmp(f.held[second].until) < 0:
			second = i
		}
		all++
	}
	if all > 4 {
		f.held[second].units = most(f.held[first].units, f.held[second].units)
		f.held = slices.Delete(f.held, first, first+1)
	}
}

// A form is the limits that a name has for one request, and the key's state
// under each.
type form struct {
	limits []known
	states []state
}

// known is a limit and what it is known by under its name.
type known struct {
	id   string
	spec Spec
}

// mostForms is how many forms count one key.
const mostForms = 4

// asked is the limits of a request that are on one key under one name.
type asked struct {
	place  place
	family *family // nil while the key is unseen
	form   *form   // the key's own, or what it would be if it was met now
	layers []int   // where they stand in the request
}

// arrange finds the form of each name and key of a request. If it meets, a form
// that is new to its key is known to it from then on; else nothing is written.
func (m *Model) arrange(now *big.Int, layers []Layer, meets bool) []asked {
	var all []asked
	for i, l := range layers {
		p := place{l.Name, l.Key}
		at := slices.IndexFunc(all, func(a asked) bool { return a.place == p })
		if at < 0 {
			at = len(all)
			all = append(all, asked{place: p, form: &form{}})
		}
		a := &all[at]
		if slices.ContainsFunc(a.form.limits, func(k known) bool { return k.id == l.ID }) {
			panic(fmt.Sprintf("model: %q under %q twice in one request", l.Key, l.Name))
		}
		a.form.limits = append(a.form.limits, known{l.ID, l.Spec})
		a.layers = append(a.layers, i)
	}
	for i := range all {
		m.meet(now, &all[i], meets)
	}
	return all
}

// meet gives a form that is asked its states.
func (m *Model) meet(now *big.Int, a *asked, meets bool) {
	f := m.families[a.place]
	if f != nil && f.forgotten(now, a.form) {
		f = nil
	}
	if f != nil {
		if own := f.find(a.form); own != nil {
			a.family, a.form = f, own
			return
		}
	}
	if f == nil {
		f = &family{}
	}
	begun := f.begin(now, a.form, m.quantum())
	a.form.states = begun
	if !meets {
		if m.families[a.place] != nil {
			a.family = m.families[a.place]
		}
		return
	}
	if m.Forgets {
		f.forms = slices.DeleteFunc(f.forms, func(g *form) bool { return g.ended(now) })
	}
	if len(f.forms) > 0 {
		f.turn = m.nextTurn()
	}
	if len(f.forms) >= mostForms {
		f.drop(now, m.quantum())
	}
	f.forms = append(f.forms, a.form)
	f.alone = m.remembered(now, f, a.form)
	m.families[a.place], a.family = f, f
}

// forgotten reports whether nothing counts any more under several forms, or
// under one that is not the one asked.
func (f *family) forgotten(now *big.Int, asked *form) bool {
	if len(f.forms) == 1 && f.forms[0].same(asked) {
		return false
	}
	return !f.holds(now) && !slices.ContainsFunc(f.forms, func(g *form) bool { return g.idleAfter(now).Sign() > 0 })
}

// holds reports whether units of forms that went still count.
func (f *family) holds(now *big.Int) bool {
	f.held = slices.DeleteFunc(f.held, func(h held) bool { return h.until.Cmp(now) <= 0 || h.units.Sign() <= 0 })
	return len(f.held) > 0
}

// drop takes out the form that is idle soonest, of equals that which decided the
// longest ago, and holds what it has in use.
func (f *family) drop(now *big.Int, quantum int64) {
	soonest := func(g *form) *big.Int { return roundedUp(g.idleAfter(now), quantum) }
	goes := f.forms[0]
	for _, g := range f.forms {
		if soonest(g).Cmp(soonest(goes)) < 0 {
			goes = g
		}
	}
	f.forms = slices.DeleteFunc(f.forms, func(g *form) bool { return g == goes })
	f.holds(now)
	for i, k := range goes.limits {
		s := goes.states[i]
		if wait := roundedUp(s.resetAfter(now), quantum); wait.Sign() > 0 {
			f.hold(held{k.id, least(ceil(use(s, now)), big.NewInt(s.most())), add(now, wait)})
		}
	}
}

// roundedUp is n as a multiple of the quantum.
func roundedUp(n *big.Int, quantum int64) *big.Int {
	return mul(ceilDiv(n, big.NewInt(quantum)), big.NewInt(quantum))
}

func (f *family) find(asked *form) *form {
	for _, g := range f.forms {
		if g.same(asked) {
			return g
		}
	}
	return nil
}

func (g *form) same(o *form) bool { return slices.Equal(g.limits, o.limits) }

// idleAfter is the wait until the form counts nothing of the key.
func (g *form) idleAfter(now *big.Int) *big.Int {
	longest := new(big.Int)
	for _, s := range g.states {
		longest = most(longest, s.resetAfter(now))
	}
	return longest
}

// begin returns the states with which a key starts under a form.
//
// A limit that the key has met in another list goes on with what it counts
// there. Another starts with the greatest use under limits of its ID; where there
// is none, under limits whose IDs the form has not. What is held counts likewise,
// but for a limit that goes on.
func (f *family) begin(now *big.Int, to *form, quantum int64) (states []state) {
	f.holds(now)
	for _, k := range to.limits {
		starts := fresh(k.spec)
		from, goesOn, named := f.sources(k, to)
		for _, s := range from {
			if one := adopt(s, k.spec, now, quantum); use(one, now).Cmp(use(starts, now)) > 0 {
				starts = one
			}
		}
		for _, h := range f.held {
			if goesOn || h.id != k.id && (named || slices.ContainsFunc(to.limits, func(o known) bool { return o.id == h.id })) {
				continue
			}
			one := fresh(k.spec)
			if units := least(h.units, big.NewInt(one.most())); units.Sign() > 0 {
				one.charge(now, units.Int64(), charging{})
			}
			if use(one, now).Cmp(use(starts, now)) > 0 {
				starts = one
			}
		}
		states = append(states, starts)
	}
	return states
}

// sources are the states whose use a limit of a form starts with; whether it goes
// on with what it counts in another list, and whether limits of its ID are known.
func (f *family) sources(of known, to *form) (from []state, goesOn, isNamed bool) {
	var same, named, orphans []state
	for _, g := range f.forms {
		for i, k := range g.limits {
			switch {
			case k == of:
				same = append(same, g.states[i])
			case k.id == of.id:
				named = append(named, g.states[i])
			case !slices.ContainsFunc(to.limits, func(o known) bool { return o.id == k.id }):
				orphans = append(orphans, g.states[i])
			}
		}
	}
	switch {
	case len(same) > 0:
		return same[:1], true, true
	case len(named) > 0:
		return named, false, true
	}
	return orphans, false, false
}

// nextTurn numbers the changes of forms.
func (m *Model) nextTurn() int {
	m.turns++
	return m.turns
}

// decided notes that a form has decided about its key.
func (m *Model) decided(now *big.Int, a *asked) {
	f := a.family
	if last := len(f.forms) - 1; last > 0 && f.forms[last] != a.form {
		f.forms = append(slices.DeleteFunc(f.forms, func(g *form) bool { return g == a.form }), a.form)
		f.turn, f.alone = m.nextTurn(), m.remembered(now, f, a.form)
	}
}

// remembered is until when any of the forms might know of a request that is made
// now.
func (m *Model) remembered(now *big.Int, f *family, asked *form) *big.Int {
	longest := new(big.Int)
	for _, g := range f.forms {
		for _, k := range g.limits {
			if g == asked || !g.ended(now) {
				longest = most(longest, roundedUp(k.spec.remembers(m.quantum()), m.quantum()))
			}
		}
	}
	return add(now, longest)
}

// remembers is how long a limit may know of a request: two drains from full to
// empty, or two periods.
func (s Spec) remembers(quantum int64) *big.Int {
	const day = 24 * 3600 * 1_000_000_000
	period := big.NewInt(s.Period)
	switch {
	case s.Calendar == "day":
		return big.NewInt(2 * day)
	case s.Calendar == "month":
		return big.NewInt(2 * 31 * day)
	case s.Kind == GCRA:
		return ceil(times(s.Burst, new(big.Rat).Mul(ratio(2, 1), ratio(s.Period, s.Count))))
	case s.Kind == Queue:
		return ceil(times(s.Burst+1, new(big.Rat).Mul(ratio(2, 1), ratio(s.Period, s.Count))))
	case s.Kind == Interval:
		return mul(mul(big.NewInt(2), ceilDiv(big.NewInt(s.Burst), big.NewInt(s.Count))), period)
	case s.Kind == Log:
		period = roundedUp(period, quantum)
	}
	return mul(big.NewInt(2), period)
}

// alone reports whether the form that is asked has been the only one to decide
// for so long that others are forgotten once they are idle.
func (m *Model) alone(now *big.Int, a *asked) bool {
	f := a.family
	return m.Forgets && f != nil && f.alone != nil && len(f.forms) > 0 && f.forms[len(f.forms)-1] == a.form && now.Cmp(f.alone) >= 0
}

// leave takes out the forms of a key that have nothing left to count, but for the
// one that is asked.
func (m *Model) leave(now *big.Int, a *asked) {
	a.family.forms = slices.DeleteFunc(a.family.forms, func(g *form) bool { return g != a.form && g.idleAfter(now).Sign() == 0 })
}

// ended reports whether a form by the calendar has nothing left to count.
func (g *form) ended(now *big.Int) bool {
	calendar := slices.ContainsFunc(g.limits, func(k known) bool { return k.spec.Calendar != "" })
	return calendar && g.idleAfter(now).Sign() == 0
}

// forget takes out the forms of a key by the calendar whose window has ended, but
// for the one that is written.
func (m *Model) forget(now *big.Int, a *asked) {
	if f := m.families[a.place]; m.Forgets && f != nil {
		f.forms = slices.DeleteFunc(f.forms, func(g *form) bool { return g != a.form && g.ended(now) })
	}
}

// countsDenied says whether another form of the key, that is not forgotten, counts
// what is denied.
func (m *Model) countsDenied(now *big.Int, a *asked) bool {
	return a.family != nil && slices.ContainsFunc(a.family.forms, func(g *form) bool {
		return g != a.form && !(m.Forgets && g.ended(now)) &&
			!(m.alone(now, a) && g.idleAfter(now).Sign() == 0) &&
			slices.ContainsFunc(g.limits, func(k known) bool { return k.spec.CountDenied })
	})
}

func (m *Model) quantum() int64 { return max(m.Quantum, 1) }

// elsewhere counts under the other forms of a key what has been charged: of
// the limits that are asked together, the most units. What was denied counts
// under those alone that count it.
func (a *asked) elsewhere(now *big.Int, units func(layer int) int64, denied bool) {
	if most := a.units(units); most > 0 {
		a.others(func(s state) {
			if !denied || s.limitOf().CountDenied {
				s.charge(now, most, charging{})
			}
		})
	}
}

// units is the most of any layer.
func (a *asked) units(of func(layer int) int64) (most int64) {
	for _, i := range a.layers {
		most = max(most, of(i))
	}
	return most
}

// others does something with each state of the key under another form.
func (a *asked) others(do func(s state)) {
	if a.family == nil {
		return
	}
	for _, g := range a.family.forms {
		if g == a.form {
			continue
		}
		for _, s := range g.states {
			do(s)
		}
	}
}
