package meter

import (
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// The sliding counter. The state is the index of the last window that was counted in, the count of
// that window, and the count of the window before it. At e into the current window, the count
// before weighs (W − e)/W, and a cost c passes if
//
//	cur + prev·(W − e)/W + c ≤ L          strict
//	cur + prev·(W − e)/W + c − 1 < L      relaxed
//
// Both sides are compared as whole numbers of count × nanoseconds.

var counterKind = kind{
	name: "sliding_counter", options: Relaxed | CountDenied, aligned: true, wearsOff: true,
	of: func(m *Meter) arithmetic { return (*counter)(m) },
}

type counter Meter

func (*counter) words() int { return 3 }

func (*counter) sound([]uint64) bool { return true }

func (m *counter) longest() time.Duration { return satmath.Duration(satmath.Add(m.period, m.period)) }

// A pair is what a sliding counter decides on: the counts of two windows, the index of the later
// window, and the time of the decision, at, which lies in that window.
type pair struct{ index, cur, prev, at uint64 }

func (m *counter) counts(s []uint64, t uint64) pair {
	p := pair{index: m.byPeriods.Quo(t), at: t}
	switch {
	case s[0] == p.index:
		p.cur, p.prev = s[1], s[2]
	case s[0] > p.index: // the clock stepped back: decide as the next window begins
		s[0] = p.index + 1
		p = pair{p.index + 1, s[1], s[2], (p.index + 1) * m.period}
	case s[0]+1 == p.index:
		p.prev = s[1]
	}
	return p
}

// left returns how much of the earlier window still overlaps: W − e.
func (m *counter) left(p pair) uint64 { return (p.index+1)*m.period - p.at }

// most returns the largest cost that passes while the current window has counted cur units and the
// one before has counted prev, of which the stretch left still overlaps.
func (m *counter) most(cur, prev, left uint64) uint64 {
	weight := uint128.Mul(prev, left)
	weighed := weight.Ceil(m.period)
	if m.spec.Relaxed {
		weighed = weight.Floor(m.period)
	}
	return satmath.Sub(satmath.Sub(m.count, cur), weighed)
}

func (m *counter) admits(s []uint64, t, c uint64) bool {
	p := m.counts(s, t)
	room := satmath.Sub(m.count, p.cur)
	if m.spec.Relaxed {
		// c − 1 < room − weight, both sides × W
		return room >= c && uint128.Mul(p.prev, m.left(p)).Less(uint128.Mul(room-c+1, m.period))
	}
	return room >= c && !uint128.Mul(room-c, m.period).Less(uint128.Mul(p.prev, m.left(p)))
}

func (m *counter) charge(s []uint64, t, c uint64) {
	p := m.counts(s, t)
	if c > 0 {
		s[0], s[1], s[2] = p.index, satmath.AddInt64(p.cur, c), p.prev
	}
}

func (m *counter) level(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	p := m.counts(s, t)
	remaining = int64(m.most(p.cur, p.prev, m.left(p)))
	end := p.at + m.left(p)
	switch {
	case p.cur > 0:
		return remaining, satmath.Duration(satmath.Add(end, m.period) - t)
	case p.prev > 0:
		return remaining, satmath.Duration(end - t)
	}
	return remaining, 0
}

// wait finds the greatest overlap of the earlier window at which c passes: in the current window if
// that can be, otherwise in the next one, where cur has become prev.
func (m *counter) wait(s []uint64, t, c uint64) time.Duration {
	p := m.counts(s, t)
	end := p.at + m.left(p)
	if room := satmath.Sub(m.count, p.cur); room >= c {
		return satmath.Duration(end - m.overlap(room-c, p.prev) - t)
	}
	return satmath.Duration(satmath.Add(end, m.period) - m.overlap(m.count-c, p.cur) - t)
}

// overlap returns the largest W − e, at most W, at which a window of n units weighs no more than
// room. In a relaxed limit the weight must be below room + 1 instead.
func (m *counter) overlap(room, n uint64) uint64 {
	if n == 0 {
		return m.period
	}
	if m.spec.Relaxed {
		return min(uint128.Mul(room+1, m.period).Ceil(n)-1, m.period)
	}
	return min(uint128.Mul(room, m.period).Floor(n), m.period)
}

func (m *counter) stamp(s []uint64, t uint64) uint64 { return m.counts(s, t).index }

func (m *counter) giveBack(_ *Reservations, mark ChargeRef, s []uint64, t, amount uint64) {
	p := m.counts(s, t)
	switch mark[1] {
	case p.index:
		p.cur = satmath.Sub(p.cur, amount)
	case p.index - 1:
		p.prev = satmath.Sub(p.prev, amount)
	}
	s[0], s[1], s[2] = p.index, p.cur, p.prev
}

func (m *counter) refund(s []uint64, t, amount uint64) {
	p := m.counts(s, t)
	fromCur := min(amount, p.cur)
	s[0], s[1], s[2] = p.index, p.cur-fromCur, satmath.Sub(p.prev, amount-fromCur)
}

func (m *counter) idle(s []uint64, t uint64) bool {
	index := m.byPeriods.Quo(t)
	return s[1]|s[2] == 0 || s[0] < satmath.Sub(index, 1) || s[0] < index && s[1] == 0
}
