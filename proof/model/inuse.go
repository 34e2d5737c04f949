package model

import (
	"fmt"
	"math/big"
)

// inUse is the units that count at t, rounded up.
func inUse(s state, t *big.Int) *big.Int {
	switch s := s.(type) {
	case *bucket:
		return s.inUse(t)
	case *queue:
		return s.inUse(t)
	case *interval:
		return s.missingAt(t)
	case *fixed:
		return s.usedAt(t)
	case *log:
		return s.sum(t)
	case *counter:
		cur, prev := s.countsAt(t)
		left := sub(s.windows().end(t), t)
		return add(cur, ceilDiv(mul(prev, left), big.NewInt(s.spec.Period)))
	case *parts:
		sum := new(big.Int)
		for _, p := range s.counts {
			if s.counting(p.index, t) {
				sum.Add(sum, p.units)
			}
		}
		return sum
	}
	panic(fmt.Sprintf("model: a state %T", s))
}

// inUse is backlog/T, rounded up.
func (b *bucket) inUse(t *big.Int) *big.Int {
	return ceil(new(big.Rat).Quo(b.backlog(t), ratio(b.spec.Period, b.spec.Count)))
}
