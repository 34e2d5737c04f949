package memstore

import (
	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// takeAmong takes a cost from a state with open reservations, and writes what that
// limit alone answers.
func takeAmong(d *stint.Decision, m *meter.Meter, open *meter.Reservations, state []uint64, at, cost int64) {
	a, ok := m.TakeAmong(open, state, at, cost)
	d.Set(m, a, ok, cost)
}

// describe returns how a state stands to a request that passes or does not.
func describe(m *meter.Meter, state []uint64, at, cost int64, passes bool) (d stint.Decision) {
	d.Set(m, m.Answer(state, at, cost, passes), passes, 0)
	return d
}
