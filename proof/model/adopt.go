package model

import (
	"fmt"
	"math/big"
	"slices"
)

// adopt is the state with which a key starts under a limit, where s is what it
// has used under another: the units in use, up to the new capacity. Units that
// both limits date keep their dates; others are charged at t. Two limits of the
// same numbers have the same state.
func adopt(s state, to Spec, t *big.Int, quantum int64) state {
	if s.limitOf() == to {
		return copyOf(s)
	}
	made := fresh(to)
	switch made := made.(type) {
	case *bucket:
		if old := bucketOf(s); old != nil {
			made.tat = add1(t, made.timeOf(use(s, t), made.most(), quantum))
			made.first = made.tat
			return made
		}
	case *queue:
		if old := bucketOf(s); old != nil {
			left := made.timeOf(use(s, t), made.most(), quantum)
			if was, told := s.(*queue); told && was.backlog(t).Sign() > 0 {
				left = mostRat(left, made.afterTold(was.backlog(t), was.unit(), quantum))
			}
			made.tat = add1(t, left)
			made.first = made.tat
			return made
		}
	case *fixed:
		if old, ok := s.(*fixed); ok && sameWindows(old.spec, to) {
			made.write(t, least(old.usedAt(t), big.NewInt(to.Count)))
			return made
		}
	case *counter:
		if old, ok := s.(*counter); ok && old.spec.Period == to.Period {
			cur, prev := old.countsAt(t)
			made.write(t, least(cur, big.NewInt(to.Count)), least(prev, big.NewInt(to.Count)))
			return made
		}
	case *log:
		if old, ok := s.(*log); ok {
			old.drop(t)
			made.entries = slices.Clone(old.entries)
			made.drop(t)
			made.cut()
			return made
		}
	case *parts:
		if old, ok := s.(*parts); ok && old.spec.Period == to.Period {
			made.take(t, old)
			return made
		}
	}
	made.charge(t, least(ceil(use(s, t)), big.NewInt(made.most())).Int64(), charging{})
	return made
}

// use is the units in use at t, of a bucket or queue a fraction: its backlog
// over T.
func use(s state, t *big.Int) *big.Rat {
	switch s := s.(type) {
	case *interval:
		return whole(s.missingAt(t))
	case *fixed:
		return whole(s.usedAt(t))
	case *log:
		return whole(s.sum(t))
	case *counter:
		cur, prev := s.countsAt(t)
		left := sub(s.windows().end(t), t)
		return whole(add(cur, ceilDiv(mul(prev, left), big.NewInt(s.spec.Period))))
	case *parts:
		sum := new(big.Int)
		for _, p := range s.counts {
			if s.counting(p.index, t) {
				sum.Add(sum, p.units)
			}
		}
		return whole(sum)
	}
	b := bucketOf(s)
	if b == nil {
		panic(fmt.Sprintf("model: a state %T", s))
	}
	return new(big.Rat).Quo(b.backlog(t), b.unit())
}

func bucketOf(s state) *bucket {
	switch s := s.(type) {
	case *bucket:
		return s
	case *queue:
		return &s.bucket
	}
	return nil
}

func sameWindows(a, b Spec) bool {
	return a.Calendar == b.Calendar && a.Zone == b.Zone && (a.Calendar != "" || a.Period == b.Period)
}

// timeOf is how long units take to drain, rounded up to what a state can hold,
// and at most that of a full bucket.
func (b *bucket) timeOf(units *big.Rat, capacity, quantum int64) *big.Rat {
	time := grains(new(big.Rat).Mul(units, b.unit()), b.unit(), quantum)
	if full := times(capacity, b.unit()); time.Cmp(full) > 0 {
		return full
	}
	return time
}

// grains is a time rounded up to what a state with that T can hold: a multiple
// of 1/L' of the clock's quantum, where L'/W' is the rate in lowest terms.
func grains(r, unit *big.Rat, quantum int64) *big.Rat {
	q := ratio(quantum, 1)
	n := new(big.Rat).Quo(unit, q).Denom()
	quanta := new(big.Rat).SetFrac(ceil(new(big.Rat).Mul(new(big.Rat).Quo(r, q), whole(n))), n)
	return quanta.Mul(quanta, q)
}

// afterTold is the backlog with which the next start is one T after the last start
// that a request got, as far as the greatest debt reaches. That start is one of the
// old T before the old backlog's end.
func (q *queue) afterTold(backlog, oldUnit *big.Rat, quantum int64) *big.Rat {
	after := grains(new(big.Rat).Sub(backlog, oldUnit), q.unit(), quantum)
	after.Add(after, q.unit())
	if greatest := times(2, times(q.most(), q.unit())); after.Cmp(greatest) > 0 {
		return greatest
	}
	return after
}

// take puts the counts of other parts of the same period into these: those of a
// part into the one in which it ends, or the present one if that is earlier, so
// that it stops counting no earlier than a unit at its end should. Of more than
// the limit has, the newest count.
func (p *parts) take(t *big.Int, old *parts) {
	period := big.NewInt(p.spec.Period)
	n, m := least(big.NewInt(old.spec.Parts), period), least(big.NewInt(p.spec.Parts), period)
	old.trim(t)
	room := big.NewInt(p.spec.Count)
	var kept []part
	for k := len(old.counts) - 1; k >= 0; k-- {
		e := old.counts[k]
		units := least(e.units, room)
		room = sub(room, units)
		i := e.index
		if old.spec.Parts > old.spec.Period { // the one instant that lies in it
			i = ceilDiv(mul(i, period), big.NewInt(old.spec.Parts))
		}
		i = sub(ceilDiv(mul(add(i, big.NewInt(1)), m), n), big.NewInt(1))
		i = least(i, floorDiv(mul(t, m), period))
		if p.spec.Parts > p.spec.Period {
			i = p.indexOf(i)
		}
		kept = append(kept, part{i, units})
	}
	for k := len(kept) - 1; k >= 0; k-- {
		p.put(kept[k].index, kept[k].units)
	}
	p.trim(t)
}

// copyOf is a state of its own that counts the same.
func copyOf(s state) state {
	switch s := s.(type) {
	case *bucket:
		return &bucket{spec: s.spec, tat: s.tat, first: s.tat}
	case *queue:
		return &queue{bucket{spec: s.spec, tat: s.tat, first: s.tat}}
	case *interval:
		c := &interval{spec: s.spec, missing: s.missing, index: s.index}
		c.first = tokens{s.missing, s.index}
		return c
	case *fixed:
		c := *s
		return &c
	case *log:
		return &log{spec: s.spec, entries: slices.Clone(s.entries)}
	case *counter:
		c := *s
		return &c
	case *parts:
		return &parts{spec: s.spec, counts: slices.Clone(s.counts)}
	}
	panic(fmt.Sprintf("model: a state %T", s))
}

func add1(t *big.Int, d *big.Rat) *big.Rat { return new(big.Rat).Add(whole(t), d) }

func mostRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}
