package memstore

import (
	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// describe returns how a state stands to a request that passes or does not.
func describe(m *meter.Meter, state []uint64, at, cost int64, passes bool) (d stint.Decision) {
	d.Set(m, m.Answer(state, at, cost, passes), passes, 0)
	return d
}
