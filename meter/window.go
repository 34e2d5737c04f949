package meter

import (
	"time"

	"github.com/stint-dev/stint/internal/satmath"
)

// The fixed window. The state is the number of the window that was counted in,
// and the count. Windows are [k·W, (k+1)·W) since the Unix epoch, or a
// calendar's. A count may pass the limit by debt, or by counting what was
// denied.

// span is one window in time: [begin, end) in nanoseconds.
type span struct{ index, begin, end uint64 }

func (m *Meter) window(t uint64) span {
	if m.calendar != nil {
		w := m.calendar.window(int64(t))
		return span{w.index, since(w.begin), since(w.end)}
	}
	index := m.byPeriods.Quo(t)
	begin := index * m.period
	return span{index, begin, begin + m.period}
}

// counted returns the window that decides at t and what it has counted: the
// window of t, or the one after where the clock stepped back over its edge. A
// state of a later one is brought back to that.
func (m *Meter) counted(s []uint64, t uint64) (used uint64, w span) {
	w = m.window(t)
	switch {
	case s[0] == w.index:
		return s[1], w
	case s[0] > w.index && s[1] > 0:
		w = m.window(w.end)
		s[0] = w.index
		return s[1], w
	}
	return 0, w
}

func (m *Meter) windowAdmits(s []uint64, t, c uint64) bool {
	used, _ := m.counted(s, t)
	return used <= m.count-c
}

// windowTake admits and charges with one look for the window.
func (m *Meter) windowTake(s []uint64, t uint64, cost int64) (ok bool) {
	used, w := m.counted(s, t)
	ok = cost <= 0 || cost <= m.capacity && used <= m.count-uint64(cost)
	if cost > 0 && (ok || m.spec.CountDenied) {
		s[0], s[1] = w.index, satmath.AddInt64(used, uint64(cost))
	}
	return ok
}

func (m *Meter) windowCharge(s []uint64, t, c uint64) {
	used, w := m.counted(s, t)
	if c > 0 {
		s[0], s[1] = w.index, satmath.AddInt64(used, c)
	}
}

func (m *Meter) windowLevel(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	used, w := m.counted(s, t)
	if used == 0 {
		return int64(m.count), 0
	}
	return int64(satmath.Sub(m.count, used)), satmath.Duration(w.end - t)
}

func (m *Meter) windowWait(s []uint64, t uint64) time.Duration {
	_, w := m.counted(s, t)
	return max(satmath.Duration(w.end-t), 1) // the last window there is has no end
}

func (m *Meter) windowGiveBack(s []uint64, t, index, amount uint64) {
	if used, w := m.counted(s, t); w.index == index {
		s[0], s[1] = w.index, satmath.Sub(used, amount)
	}
}

func (m *Meter) windowRefund(s []uint64, t, amount uint64) {
	used, w := m.counted(s, t)
	s[0], s[1] = w.index, satmath.Sub(used, amount)
}

func (m *Meter) windowIdle(s []uint64, t uint64) bool {
	return s[1] == 0 || s[0] < m.window(t).index
}
