package meter

import (
	"math"

	"github.com/stint-dev/stint/internal/uint128"
)

// A request that waited for its turn is decided when its caller wakes, which is late, but it is
// charged as of its turn: for a bucket, tat' = max(tat, turn) + cost·T. So a late timer delays its
// own request, and none behind it.

// Turns reports whether the state says when a request would have passed. Only a bucket that has
// been charged does.
func (m *Meter) Turns(state []uint64) bool {
	return (m.narrow && state[0] != 0 || m.wide && state[0]|state[1] != 0) && !m.queues
}

// Since returns the moment from which a cost that passes now would have passed, rounded up. It may
// be called only where [Meter.Turns] is true.
func (m *Meter) Since(state []uint64, cost int64) int64 {
	need := uint128.Mul(uint64(max(cost, 0)), m.emissionNum)
	if m.narrow {
		return int64(uint128.From(state[0]).Add(need).Sub(m.burstSpan).Lo)
	}
	tat := uint128.Int{Hi: state[0], Lo: state[1]}
	return int64(min(m.byEmissionDen.Ceil(tat.Add(need).Sub(m.burstSpan)), math.MaxInt64))
}

// Lost returns how much time of the bucket is lost by a charge made now instead of at turn, an
// earlier moment. [Meter.Recover] gives that time back once the charge is made. Lost may be called
// only where [Meter.Turns] is true.
func (m *Meter) Lost(state []uint64, now, turn int64) uint128.Int {
	t, from := uint128.From(since(now)), uint128.From(since(turn))
	tat := uint128.From(state[0])
	if m.wide {
		t, from = uint128.Mul(t.Lo, m.emissionDen), uint128.Mul(from.Lo, m.emissionDen)
		tat = uint128.Int{Hi: state[0], Lo: state[1]}
	}
	if from.Less(tat) {
		from = tat
	}
	return t.Sub(from)
}

// Recover moves a charge back to the turn that [Meter.Lost] was asked about.
func (m *Meter) Recover(state []uint64, lost uint128.Int) {
	if m.narrow {
		state[0] -= lost.Lo
		return
	}
	tat := uint128.Int{Hi: state[0], Lo: state[1]}.Sub(lost)
	state[0], state[1] = tat.Hi, tat.Lo
}
