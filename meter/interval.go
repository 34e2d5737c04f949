package meter

import (
	"math"
	"math/bits"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// The token bucket that is filled in lumps. The state is the number of missing tokens and the index
// of the period in which that number was right. More tokens than the bucket holds may be missing:
// the excess is debt, at most [Spec.GreatestDebt].

var lumpsKind = kind{
	name: "token_bucket_interval", options: Burst | Debt, aligned: true,
	of: func(m *Meter) arithmetic { return (*lumps)(m) },
}

type lumps Meter

func (*lumps) words() int { return 2 }

func (*lumps) sound([]uint64) bool { return true }

func (m *lumps) longest() time.Duration {
	n := uint128.From(m.deepest).Ceil(m.count)
	return satmath.Duration(uint128.Mul(satmath.Add(n, 1), m.period).Floor(1))
}

// missing returns the tokens that are missing at t, and the index of the period to decide in. That
// is the period of t, or the next one where the clock stepped back over an edge. A state from a
// later period is brought back to the next one.
func (m *lumps) missing(s []uint64, t uint64) (missing, index uint64) {
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

func (m *lumps) admits(s []uint64, t, c uint64) bool {
	missing, _ := m.missing(s, t)
	return missing <= uint64(m.capacity)-c
}

func (m *lumps) charge(s []uint64, t, c uint64) {
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

func (m *lumps) level(s []uint64, t uint64) (remaining int64, reset time.Duration) {
	missing, index := m.missing(s, t)
	remaining = int64(satmath.Sub(uint64(m.capacity), missing))
	if missing == 0 {
		return remaining, 0
	}
	return remaining, satmath.Duration(m.until(missing, index, t))
}

// until returns the wait from t until the given number of tokens has been added after the end of
// period index.
func (m *lumps) until(tokens, index, t uint64) uint64 {
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

func (m *lumps) wait(s []uint64, t, c uint64) time.Duration {
	missing, index := m.missing(s, t)
	return satmath.Duration(m.until(satmath.Sub(missing, uint64(m.capacity)-c), index, t))
}

func (m *lumps) refund(s []uint64, t, amount uint64) {
	missing, index := m.missing(s, t)
	s[0], s[1] = satmath.Sub(missing, amount), index
}

func (m *lumps) idle(s []uint64, t uint64) bool {
	index := m.byPeriods.Quo(t)
	if s[0] == 0 || s[1] >= index {
		return s[0] == 0
	}
	lumps := uint128.Mul(index-s[1], m.count)
	return lumps.Hi != 0 || lumps.Lo >= s[0]
}

func (*lumps) stamp([]uint64, uint64) uint64 { return 0 }

func (m *lumps) giveBack(r *Reservations, mark ChargeRef, s []uint64, t, n uint64) {
	(*Meter)(m).drainBack(r, mark, s, t, n)
}

func (m *lumps) chargeAmong(r *Reservations, s []uint64, t, c uint64, hasDelay bool) {
	(*Meter)(m).drainAmong(r, s, t, c, hasDelay)
}

func (m *lumps) inUse(s []uint64, t uint64) uint128.Int {
	missing, _ := m.missing(s, t)
	return uint128.From(missing)
}

func (m *lumps) measure(n uint64) uint128.Int { return uint128.From(min(n, m.deepest)) }

func (m *lumps) lower(s []uint64, t uint64, by uint128.Int) { m.refund(s, t, by.Lo) }

func (m *lumps) holds(old *Meter, s []uint64, t, c uint64) bool {
	missing, _ := (*lumps)(old).missing(s, t)
	return missing <= uint64(m.capacity)-c
}

func (*lumps) adopt(old *Meter, s []uint64, t uint64) { s[0], s[1] = (*lumps)(old).missing(s, t) }

func (m *lumps) through(from *Meter, s []uint64, t, c uint64, ok bool) (a Answer) {
	old := (*lumps)(from)
	missing, index := old.missing(s, t)
	a.Remaining = int64(satmath.Sub(uint64(m.capacity), missing))
	if missing > 0 {
		a.ResetAfter = satmath.Duration(old.until(missing, index, t))
	}
	if !ok {
		a.RetryAfter = satmath.Duration(old.until(missing-(uint64(m.capacity)-c), index, t))
	}
	return a
}
