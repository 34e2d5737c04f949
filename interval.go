package stint

import (
	"math"
	"math/bits"
	"time"
)

// The token bucket that is filled in lumps. The state is how many tokens are
// missing and the index of the period in which that was so. Tokens may go
// below zero as debt, at most one burst.

// missing returns the tokens that are missing at t and the period that is so
// of: that of t, or the one after where the clock stepped back. A state of a
// later one is brought back to that.
func (m *Meter) missing(s []uint64, t uint64) (missing, index uint64) {
	missing, index = min(s[0], 2*uint64(m.capacity)), m.byPeriods.quo(t)
	if s[1] > index {
		s[1] = index + 1
		return missing, index + 1
	}
	lumps := mul(index-s[1], m.count)
	if lumps.hi != 0 {
		return 0, index
	}
	return satSub(missing, lumps.lo), index
}

func (m *Meter) intervalAdmits(s []uint64, t, c uint64) bool {
	missing, _ := m.missing(s, t)
	return missing <= uint64(m.capacity)-c
}

func (m *Meter) intervalCharge(s []uint64, t, c uint64) {
	missing, index := m.missing(s, t)
	if c == 0 {
		return
	}
	sum, carry := bits.Add64(missing, c, 0)
	if most := 2 * uint64(m.capacity); carry != 0 || sum > most {
		sum = most
	}
	s[0], s[1] = sum, index
}

func (m *Meter) intervalLevel(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	missing, index := m.missing(s, t)
	remaining = int64(satSub(uint64(m.capacity), missing))
	if missing == 0 {
		return remaining, 0
	}
	return remaining, duration(m.lumpsUntil(missing, index, t))
}

// lumpsUntil returns the wait from t until so many tokens have been added
// after the period index.
func (m *Meter) lumpsUntil(tokens, index, t uint64) uint64 {
	lumps := tokens / m.count
	if tokens%m.count != 0 {
		lumps++
	}
	at := mul(satAdd(index, lumps), m.period)
	if at.hi != 0 {
		return math.MaxInt64
	}
	return satSub(at.lo, t)
}

func (m *Meter) intervalWait(s []uint64, t, c uint64) Wait {
	missing, index := m.missing(s, t)
	return Wait(duration(m.lumpsUntil(satSub(missing, uint64(m.capacity)-c), index, t)))
}

func (m *Meter) intervalRefund(s []uint64, t, amount uint64) {
	missing, index := m.missing(s, t)
	s[0], s[1] = satSub(missing, amount), index
}

func (m *Meter) intervalIdle(s []uint64, t uint64) bool {
	index := m.byPeriods.quo(t)
	if s[0] == 0 || s[1] >= index {
		return s[0] == 0
	}
	lumps := mul(index-s[1], m.count)
	return lumps.hi != 0 || lumps.lo >= s[0]
}
