package meter

import (
	"cmp"
	"math"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// Sub-windows: the window is cut into n equal parts aligned to the epoch, part i being [i·W/n,
// (i+1)·W/n). Every part that still overlaps (t − W, t] counts: the part of t and the n before it.
//
// The state is the index of the newest part, the sum of all counts, and a ring of n + 1 counts.
// Where counts fit 32 bits (small), two share a word. A small count stops at 2^32 − 1, which is
// above every limit that uses small counts.
//
// All times are whole nanoseconds, so parts shorter than one nanosecond cannot be told apart: there
// are never more parts than nanoseconds.

const partHead = 2

var partsKind = kind{
	name: "sliding_buckets", options: Parts | CountDenied, aligned: true, of: newParts,
}

type parts Meter

func newParts(m *Meter) arithmetic {
	m.small = m.count < 1<<31
	m.subWindows = min(uint64(cmp.Or(m.spec.SubWindows, DefaultSubWindows)), m.period)
	m.bySubWindows, m.byRing = uint128.NewDivisor(m.period/m.subWindows), uint128.NewDivisor(m.subWindows+1)
	return (*parts)(m)
}

func (m *parts) words() int {
	counts := int(m.subWindows) + 1
	if m.small {
		counts = (counts + 1) / 2
	}
	return partHead + counts
}

func (m *parts) longest() time.Duration { return satmath.Duration(satmath.Add(m.period, m.period)) }

func (m *parts) partOf(t uint64) uint64 {
	if m.bySubWindows.D*m.subWindows == m.period {
		return m.bySubWindows.Quo(t)
	}
	return uint128.Mul(t, m.subWindows).Floor(m.period)
}

func (m *parts) partBegin(part uint64) uint64 { return uint128.Mul(part, m.period).Ceil(m.subWindows) }

// forgotten returns the wait from t until a part stops counting.
func (m *parts) forgotten(part, t uint64) uint64 {
	return satmath.Sub(m.partBegin(part+m.subWindows+1), t)
}

// slot returns the index in the ring at which a part is counted: part mod (n + 1).
func (m *parts) slot(part uint64) uint64 { return part - m.byRing.Quo(part)*m.byRing.D }

func (m *parts) partCount(s []uint64, part uint64) uint64 {
	i := m.slot(part)
	if m.small {
		return s[partHead+i/2] >> (i % 2 * 32) & math.MaxUint32
	}
	return s[partHead+i]
}

func (m *parts) setPart(s []uint64, part, n uint64) {
	before, saturated := m.partCount(s, part), s[1] == math.MaxUint64
	i := m.slot(part)
	if m.small {
		n = min(n, math.MaxUint32)
		shift := i % 2 * 32
		w := &s[partHead+i/2]
		*w = *w&^(math.MaxUint32<<shift) | n<<shift
	} else {
		n = min(n, math.MaxInt64)
		s[partHead+i] = n
	}
	s[1] = satmath.Add(s[1]-before, n)
	if saturated {
		m.recount(s)
	}
}

// recount adds up the counts again after the sum was held at the greatest word.
func (m *parts) recount(s []uint64) {
	s[1] = 0
	for part := range m.subWindows + 1 {
		s[1] = satmath.Add(s[1], m.partCount(s, part))
	}
}

// slide forgets the parts that no longer count at t, and returns the newest part: that of t, or a
// later one where the clock stepped back.
func (m *parts) slide(s []uint64, t uint64) uint64 {
	now, newest := m.partOf(t), s[0]
	if newest > now {
		if ahead := now + m.subWindows; newest > ahead {
			m.relabel(s, ahead)
		}
		return s[0]
	}
	if s[1] > 0 {
		for part := newest + 1; part <= min(now, newest+m.subWindows+1); part++ {
			m.setPart(s, part, 0)
		}
	}
	s[0] = now
	return now
}

// relabel moves the count of every part back in time, so that the newest part is newest.
func (m *parts) relabel(s []uint64, newest uint64) {
	counts := make([]uint64, m.subWindows+1)
	for i := range counts {
		counts[i] = m.partCount(s, satmath.Sub(s[0], uint64(i)))
	}
	clear(s)
	s[0] = newest
	for i, n := range counts {
		if part := newest - uint64(i); part <= newest {
			m.setPart(s, part, n)
		}
	}
}

func (m *parts) admits(s []uint64, t, c uint64) bool {
	m.slide(s, t)
	return s[1] <= m.count-c
}

func (m *parts) charge(s []uint64, t, c uint64) {
	part := m.slide(s, t)
	if c > 0 {
		m.setPart(s, part, satmath.AddInt64(m.partCount(s, part), c))
	}
}

func (m *parts) level(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	part := m.slide(s, t)
	if s[1] == 0 {
		return int64(m.count), 0
	}
	for m.partCount(s, part) == 0 {
		part--
	}
	return int64(satmath.Sub(m.count, s[1])), satmath.Duration(m.forgotten(part, t))
}

// wait looks for the newest part that must be forgotten: that part and those after it leave no room
// for c. It adds up from the newest, since the sum in the state may be held at its greatest.
func (m *parts) wait(s []uint64, t, c uint64) time.Duration {
	room, counted := m.count-c, uint64(0)
	for part := m.slide(s, t); ; part-- {
		counted = satmath.Add(counted, m.partCount(s, part))
		if counted > room || part == 0 {
			return satmath.Duration(m.forgotten(part, t))
		}
	}
}

func (m *parts) stamp(s []uint64, t uint64) uint64 { return m.slide(s, t) }

func (m *parts) giveBack(_ *Reservations, mark ChargeRef, s []uint64, t, amount uint64) {
	newest, part := m.slide(s, t), mark[1]
	if part <= newest && newest-part <= m.subWindows {
		m.setPart(s, part, satmath.Sub(m.partCount(s, part), amount))
	}
}

func (m *parts) refund(s []uint64, t, amount uint64) {
	newest := m.slide(s, t)
	for part := newest; amount > 0 && s[1] > 0 && part <= newest; part-- {
		n := m.partCount(s, part)
		back := min(n, amount)
		m.setPart(s, part, n-back)
		amount -= back
	}
}

func (m *parts) idle(s []uint64, t uint64) bool {
	if s[1] == 0 {
		return true
	}
	part := s[0]
	for m.partCount(s, part) == 0 {
		part--
	}
	return part+m.subWindows < m.partOf(t)
}

// sound reports whether the sum matches the counts, and no part lies outside the range of time.
func (m *parts) sound(s []uint64) bool {
	total := uint64(0)
	for i := range m.subWindows + 1 {
		n := m.partCount(s, i)
		if n > 0 && i > s[0] { // the part would lie before the epoch
			return false
		}
		total = satmath.Add(total, n)
	}
	return s[1] == total && s[0] <= math.MaxInt64
}
