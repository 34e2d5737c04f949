package meter

import (
	"math"
	"slices"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// A reservation may excuse denials, because its true cost is not known yet: a request that would
// pass if the reserved units were given back does not misbehave. Its denial begins no ban, is not
// counted, and asks it to come back within [ExcusedFor].

// ExcusedFor is the longest retry after that an excused denial gives.
const ExcusedFor = time.Second

// An excuse is an open charge that excuses denials.
type excuse struct {
	number, stamp, units uint64
	until                uint64 // when it stops excusing
}

// Excuse lets an open charge excuse denials until a moment. One state keeps the newest 1,024
// excuses.
func (r *Reservations) Excuse(mark ChargeRef, units, now, until int64) {
	t := since(now)
	if units <= 0 || since(until) <= t {
		return
	}
	if r.excuses = slices.DeleteFunc(r.excuses, func(e excuse) bool { return e.until <= t }); len(r.excuses) >= mostOpen {
		r.excuses = slices.Delete(r.excuses, 0, 1)
	}
	r.excuses = append(r.excuses, excuse{mark[0], mark[1], uint64(units), since(until)})
}

func (r *Reservations) excuseNoMore(mark ChargeRef) {
	i, ok := slices.BinarySearchFunc(r.excuses, mark[0], func(e excuse, number uint64) int {
		switch {
		case e.number < number:
			return -1
		case e.number > number:
			return 1
		}
		return 0
	})
	if ok {
		r.excuses = slices.Delete(r.excuses, i, i+1)
	}
}

// Excused reports whether a cost that the state denies would pass if every open charge that excuses
// denials were given back. It does not change the state.
//
// Price: time in proportion to the open charges; for sliding_buckets also to the parts.
func (m *Meter) Excused(r *Reservations, state []uint64, now, cost int64) bool {
	if r == nil || len(r.excuses) == 0 || cost > m.capacity {
		return false
	}
	t := since(now)
	r.excuses = slices.DeleteFunc(r.excuses, func(e excuse) bool { return e.until <= t })
	if log, ok := m.as.(*slidingLog); ok {
		return log.admitsWithout(r, state, t, uint64(cost))
	}
	without := slices.Clone(state)
	if m.drain != nil {
		m.drain.lower(without, t, m.excusable(r, state, t))
	} else {
		for _, e := range r.excuses {
			m.as.giveBack(r, ChargeRef{e.number, e.stamp}, without, t, e.units)
		}
	}
	return m.Admits(without, now, cost)
}

// excusable returns how far the backlog would fall if all excuses were given back. What a charge
// gives back passes through each later open charge, up to its low. In a queue, a charge gives back
// nothing while a later one stays.
func (m *Meter) excusable(r *Reservations, state []uint64, t uint64) (back uint128.Int) {
	m.note(r, state, t)
	left := r.excuses
	for i := range r.open {
		n, units := 0, uint64(0)
		for n < len(left) && (i+1 == len(r.open) || left[n].number < r.open[i+1].first) {
			units = satmath.Add(units, left[n].units)
			n++
		}
		if left = left[n:]; m.queues && n < r.open[i].left {
			back = uint128.Int{}
		}
		back = uint128.Min(back.Add(m.drain.measure(min(units, m.deepest))), r.low(i))
	}
	return back
}

// admitsWithout is admits after the charges that excuse denials are given back, as far as they
// still count.
func (m *slidingLog) admitsWithout(of *Reservations, s []uint64, t, c uint64) bool {
	m.forget(s, t)
	r, used := ring(s), s[1]
	last, left := uint64(math.MaxUint64), uint64(0) // the entry that was looked at, and what it has left
	for _, e := range of.excuses {
		if e.stamp+m.period <= t {
			continue
		}
		at := e.stamp
		if of.cutFrom <= at && at < of.cutAt {
			at = of.cutAt
		}
		if at != last {
			last, left = at, 0
			if i := r.find(at); i < r.used() && *r.word(i) == at {
				left = r.entryAt(i).units
			}
		}
		back := min(left, e.units)
		left, used = left-back, used-back
	}
	return used <= m.count-c
}
