package model

import "math/big"

// identity is what a state belongs to, beside its name and its key: a limit of
// another algorithm, period, calendar or division is another limit.
type identity struct {
	id, kind       string
	period, parts  int64
	wide           bool // sliding_buckets: counts of more than 32 bits
	fromFirst      bool
	calendar, zone string
}

// place is where a state lives.
type place struct {
	name, key string
	limit     identity
}

func placeOf(l Layer) place {
	s := l.Spec
	of := identity{id: l.ID, kind: s.Kind, period: s.Period, fromFirst: s.FromFirst, calendar: s.Calendar, zone: s.Zone}
	if s.Kind == Parts {
		of.parts, of.wide = s.Parts, s.Count >= 1<<31
	}
	if s.Calendar != "" {
		of.period = 0
	}
	return place{l.Name, l.Key, of}
}

// drains reports whether the state of a kind has numbers, by which it drains.
// That of others is units with dates, which any count may be compared with.
func drains(kind string) bool { return kind == GCRA || kind == Queue || kind == Interval }

// full is the units in use of a bucket or queue with no room left.
func (s Spec) full() int64 {
	if s.Kind == Queue {
		return s.Burst + 1
	}
	return s.Burst
}

// deepest is the most units in use: those, and as many again unless the limit says another
// debt.
func (s Spec) deepest() *big.Int {
	debt := s.Debt
	if debt == 0 {
		debt = s.full()
	}
	return add(big.NewInt(s.full()), big.NewInt(debt))
}

// find returns the state of a layer: one of its own numbers where nothing is in
// use, as an unseen key has. It writes nothing.
func (m *Model) find(now *big.Int, l Layer) state {
	s := m.states[placeOf(l)]
	switch {
	case s == nil:
		return fresh(l.Spec)
	case !drains(l.Spec.Kind):
		s.compare(l.Spec)
	case foreign(s, l.Spec) && s.resetAfter(now).Sign() == 0:
		return fresh(l.Spec)
	}
	return s
}

// put makes s the state of a layer.
func (m *Model) put(l Layer, s state) { m.states[placeOf(l)] = s }

// foreign reports whether a state drains by other numbers than those of a limit.
func foreign(s state, spec Spec) bool {
	of := s.limitOf()
	of.Ban = spec.Ban // is none of them
	return of != spec
}

// through is a state as a limit of other numbers sees it: it drains as it does,
// and what is in use is held against the capacity of that limit.
func through(s state, spec Spec, now *big.Int) state {
	seen := s.limitOf()
	seen.Burst = spec.Burst
	return under(s, seen, now, func(r *big.Rat) *big.Rat { return r })
}

// adopt is a state under the numbers of a limit: the units in use are, rounded up
// to what a bucket can hold; or nil if they are more than its capacity.
func (m *Model) adopt(s state, spec Spec, now *big.Int) state {
	if use(s, now).Cmp(ratio(fresh(spec).most(), 1)) > 0 {
		return nil
	}
	unit := ratio(spec.Period, spec.Count)
	return under(s, spec, now, func(time *big.Rat) *big.Rat { return grains(time, unit, max(m.Quantum, 1)) })
}

// under is a state with as many units in use under other numbers, whose time is
// rounded.
func under(s state, spec Spec, now *big.Int, rounded func(*big.Rat) *big.Rat) state {
	made := fresh(spec)
	switch made := made.(type) {
	case *bucket:
		made.start(now, rounded(new(big.Rat).Mul(use(s, now), made.unit())))
	case *queue:
		made.start(now, rounded(new(big.Rat).Mul(use(s, now), made.unit())))
	case *interval:
		made.write(now, s.(*interval).missingAt(now))
		made.first = tokens{made.missing, made.index}
	}
	return made
}

// use is the units in use at t of a state that drains, in a bucket a fraction: its
// backlog over T.
func use(s state, t *big.Int) *big.Rat {
	switch s := s.(type) {
	case *bucket:
		return new(big.Rat).Quo(s.backlog(t), s.unit())
	case *queue:
		return new(big.Rat).Quo(s.backlog(t), s.unit())
	}
	return whole(s.(*interval).missingAt(t))
}

// grains is a time rounded up to what a state with that T can hold: a multiple
// of 1/L' of the clock's quantum, where L'/W' is the rate in lowest terms.
func grains(r, unit *big.Rat, quantum int64) *big.Rat {
	q := ratio(quantum, 1)
	n := new(big.Rat).Quo(unit, q).Denom()
	quanta := new(big.Rat).SetFrac(ceil(new(big.Rat).Mul(new(big.Rat).Quo(r, q), whole(n))), n)
	return quanta.Mul(quanta, q)
}
