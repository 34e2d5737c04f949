package meter

import (
	"math"
	"math/bits"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// The token bucket that is filled in lumps. The state is how many tokens are
// missing and the index of the period in which that was so. Tokens may go
// below zero as debt, at most [Spec.GreatestDebt].

// missing returns the tokens that are missing at t and the period that is so
// of: that of t, or the one after where the clock stepped back. A state of a
// later one is brought back to that.
func (m *Meter) missing(s []uint64, t uint64) (missing, index uint64) {
	missing, index = min(s[0], m.deepest), m.byPeriods.Quo(t)
	if s[1] > index {
		s[1] = index + 1
		return missing, index + 1
	}
	lumps := uint128.Mul(index-s[1], m.count)
	if lumps.Hi != 0 {
		return 0, index
	}
	return satmath.Sub(missing, lumps.Lo), index
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
	if carry != 0 || sum > m.deepest {
		sum = m.deepest
	}
	s[0], s[1] = sum, index
}

func (m *Meter) intervalLevel(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	missing, index := m.missing(s, t)
	remaining = int64(satmath.Sub(uint64(m.capacity), missing))
	if missing == 0 {
		return remaining, 0
	}
	return remaining, satmath.Duration(m.lumpsUntil(missing, index, t))
}

// lumpsUntil returns the wait from t until the given number of tokens has been
// added after the period index.
func (m *Meter) lumpsUntil(tokens, index, t uint64) uint64 {
	lumps := tokens / m.count
	if tokens%m.count != 0 {
		lumps++
	}
	at := uint128.Mul(satmath.Add(index, lumps), m.period)
	if at.Hi != 0 {
		return math.MaxInt64
	}
	return satmath.Sub(at.Lo, t)
}

func (m *Meter) intervalWait(s []uint64, t, c uint64) time.Duration {
	missing, index := m.missing(s, t)
	return satmath.Duration(m.lumpsUntil(satmath.Sub(missing, uint64(m.capacity)-c), index, t))
}

func (m *Meter) intervalRefund(s []uint64, t, amount uint64) {
	missing, index := m.missing(s, t)
	s[0], s[1] = satmath.Sub(missing, amount), index
}

func (m *Meter) intervalIdle(s []uint64, t uint64) bool {
	index := m.byPeriods.Quo(t)
	if s[0] == 0 || s[1] >= index {
		return s[0] == 0
	}
	lumps := uint128.Mul(index-s[1], m.count)
	return lumps.Hi != 0 || lumps.Lo >= s[0]
}
