package model

import "math/big"

// ban is of a key under limits of one identity.
type ban struct{ end, length *big.Int }

// banned is how long a key is banned yet under a limit: a limit without bans knows of
// none. A ban that a clock which jumped began lasts no longer than it is long.
func (m *Model) banned(now *big.Int, l Layer) *big.Int {
	b := m.bans[placeOf(l)]
	if l.Spec.Ban == 0 || b == nil {
		return new(big.Int)
	}
	return least(lessUpTo(b.end, now), b.length)
}

// ban begins a ban, if a limit with bans has denied a cost that it can let pass, and
// none lasts.
func (m *Model) ban(now *big.Int, p *weighted, cost int64) {
	units, length := p.units(cost), big.NewInt(p.layer.Spec.Ban)
	if length.Sign() == 0 || p.bannedFor.Sign() > 0 || units.Cmp(big.NewInt(p.most())) > 0 {
		return
	}
	m.bans[placeOf(p.layer)] = &ban{add(now, length), length}
	p.bannedFor = length
}

// Block has every layer whose limit has bans deny its key for d ns from t on. A ban that lasts
// longer stays as it is. A d of 0 ends bans.
func (m *Model) Block(t int64, layers []Layer, d int64) {
	now, length := m.clock(t), big.NewInt(d)
	for _, l := range layers {
		switch {
		case l.Spec.Ban == 0:
		case d == 0:
			delete(m.bans, placeOf(l))
		case m.banned(now, l).Cmp(length) < 0:
			m.bans[placeOf(l)] = &ban{add(now, length), length}
		}
	}
}
