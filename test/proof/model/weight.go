package model

import "math/big"

// weighted is one limit of a request: the state that it charges, what the limit sees of
// it, and how many of its units one unit of the request is.
type weighted struct {
	layer  Layer
	own    state
	state  // as the limit sees it
	weight *big.Int

	bannedFor *big.Int // how long the key is banned yet
}

// see looks at the state with the eyes of the limit.
func (p *weighted) see(now *big.Int) {
	if p.state = p.own; drains(p.layer.Spec.Kind) && foreign(p.own, p.layer.Spec) {
		p.state = through(p.own, p.layer.Spec, now)
	}
}

// units is what a cost of the request is here, whatever its size.
func (p weighted) units(cost int64) *big.Int { return mul(big.NewInt(cost), p.weight) }

// held is units as they are counted: no more than an int64 holds.
func (p weighted) held(cost int64) int64 { return least(p.units(cost), maxInt64).Int64() }

// passes says whether the given units pass at t: if the key is not banned, and there is
// room for them. For more than an int64 holds there never is.
func (p weighted) passes(t, units *big.Int) bool {
	return units.Sign() == 0 || p.bannedFor.Sign() == 0 && units.IsInt64() && p.admits(t, units.Int64())
}

// leastWait is the least wait after which the given units pass; nil for never.
func (p weighted) leastWait(t, units *big.Int) *big.Int {
	if !units.IsInt64() {
		return nil
	}
	w := leastWait(p.state, t, units.Int64())
	if w == nil || units.Sign() == 0 {
		return w
	}
	return most(w, p.bannedFor)
}

// requests is the greatest n of which n·weight units pass at t.
func (p weighted) requests(t *big.Int, remaining int64) int64 {
	return greatest(remaining, func(n int64) bool { return p.passes(t, p.units(n)) })
}
