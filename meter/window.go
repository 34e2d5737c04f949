package meter

import (
	"time"

	"github.com/stint-dev/stint/internal/satmath"
)

// The fixed window. The state is the index of the window that was counted in, and the count.
// Windows are [k·W, (k+1)·W) since the Unix epoch, or those of a calendar; or a key has its own,
// from its first request on, and its index is its end. The count may pass the limit, by debt or
// where denied requests are counted.

var windowKind = kind{
	name: "fixed_window", options: CountDenied | ByCalendar | FromFirst, aligned: true,
	of: func(m *Meter) arithmetic { return (*window)(m) },
}

type window Meter

func (*window) words() int { return 2 }

func (*window) sound([]uint64) bool { return true }

func (m *window) longest() time.Duration {
	const day = 24 * time.Hour
	switch {
	case m.calendar == nil:
		return satmath.Duration(m.period)
	case m.spec.Calendar == Day:
		return 2 * day // no zone has a longer day
	}
	return m.spec.Calendar.nominal() + 3*day
}

// A span is one window, up to an end in nanoseconds.
type span struct{ index, end uint64 }

func (m *window) of(t uint64) span {
	if m.calendar != nil {
		w := m.calendar.window(int64(t))
		return span{w.index, since(w.end)}
	}
	index := m.byPeriods.Quo(t)
	return span{index, index*m.period + m.period}
}

// counted returns the window that decides at t and its count. That is the window of t, or the next
// one where the clock stepped back over an edge. A state from a later window is brought back to the
// next one.
func (m *window) counted(s []uint64, t uint64) (used uint64, w span) {
	if m.spec.FromFirst {
		return m.own(s, t)
	}
	w = m.of(t)
	switch {
	case s[0] == w.index:
		return s[1], w
	case s[0] > w.index && s[1] > 0:
		w = m.of(w.end)
		s[0] = w.index
		return s[1], w
	}
	return 0, w
}

// own is counted for windows that begin with a key's first request. It returns the key's window, or the
// one that a charge at t would begin. Where the clock stepped back, a window ends at most two periods
// after t.
func (m *window) own(s []uint64, t uint64) (used uint64, w span) {
	if s[1] == 0 || s[0] <= t {
		return 0, span{t + m.period, t + m.period}
	}
	s[0] = min(s[0], t+2*m.period)
	return s[1], span{s[0], s[0]}
}

func (m *window) admits(s []uint64, t, c uint64) bool {
	used, _ := m.counted(s, t)
	return used <= m.count-c
}

// allow admits and charges, and looks up the window only once.
func (m *window) allow(s []uint64, t uint64, cost int64) (ok bool) {
	used, w := m.counted(s, t)
	ok = cost <= 0 || cost <= m.capacity && used <= m.count-uint64(cost)
	if cost > 0 && (ok || m.spec.CountDenied) {
		s[0], s[1] = w.index, satmath.AddInt64(used, uint64(cost))
	}
	return ok
}

func (m *window) take(s []uint64, t uint64, cost int64) (a Answer, ok bool) {
	ok = m.allow(s, t, cost)
	a.Remaining, a.ResetAfter = m.level(s, t)
	if !ok {
		if a.RetryAfter = Never; cost <= m.capacity {
			a.RetryAfter = m.wait(s, t, uint64(cost))
		}
	}
	return a, ok
}

func (m *window) charge(s []uint64, t, c uint64) {
	used, w := m.counted(s, t)
	if c > 0 {
		s[0], s[1] = w.index, satmath.AddInt64(used, c)
	}
}

func (m *window) level(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	used, w := m.counted(s, t)
	if used == 0 {
		return int64(m.count), 0
	}
	return int64(satmath.Sub(m.count, used)), satmath.Duration(w.end - t)
}

func (m *window) wait(s []uint64, t, _ uint64) time.Duration {
	_, w := m.counted(s, t)
	return max(satmath.Duration(w.end-t), 1) // the window at the end of time has no end
}

func (m *window) stamp(s []uint64, t uint64) uint64 {
	_, w := m.counted(s, t)
	return w.index
}

func (m *window) giveBack(_ *Reservations, mark ChargeRef, s []uint64, t, n uint64) {
	if used, w := m.counted(s, t); w.index == mark[1] {
		s[0], s[1] = w.index, satmath.Sub(used, n)
	}
}

func (m *window) refund(s []uint64, t, amount uint64) {
	used, w := m.counted(s, t)
	s[0], s[1] = w.index, satmath.Sub(used, amount)
}

func (m *window) idle(s []uint64, t uint64) bool {
	if m.spec.FromFirst {
		return s[1] == 0 || s[0] <= t
	}
	return s[1] == 0 || s[0] < m.of(t).index
}
