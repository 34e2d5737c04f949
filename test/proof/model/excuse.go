package model

import (
	"maps"
	"math/big"
	"slices"
)

// ExcusedFor is the longest wait of an excused denial, in ns.
const ExcusedFor = 1_000_000_000

// excused reports whether the denial of a part would be none if the open reservations that
// excuse denials were given back: each is settled at 0 in a copy of the state, the newest
// first, as far as it may give back at all.
func (m *Model) excused(now *big.Int, p weighted, cost int64) bool {
	units := p.units(cost)
	if p.bannedFor.Sign() > 0 || !units.IsInt64() || p.state != p.own {
		return false
	}
	m.open(p.own, now) // forgets what is open no more
	without := p.own.clone()
	without.compare(p.layer.Spec)
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(m.held))) {
		r := m.held[id]
		if !slices.Contains(m.live, r) {
			continue
		}
		for i, l := range r.layers {
			if placeOf(l) == placeOf(p.layer) && r.stands(i, p.own) && now.Cmp(add(r.made, big.NewInt(l.Excuses))) < 0 {
				of := weighted{layer: l, weight: big.NewInt(max(l.Weight, 1))}
				without.giveBack(now, r.receipts[i], of.held(r.cost))
			}
		}
	}
	return without.admits(now, units.Int64())
}

func (b *bucket) clone() state {
	all := *b
	all.past.acts = slices.Clone(b.past.acts)
	return &all
}

func (q *queue) clone() state { return &queue{*q.bucket.clone().(*bucket)} }

func (b *interval) clone() state {
	all := *b
	all.past.acts = slices.Clone(b.past.acts)
	return &all
}

func (f *fixed) clone() state     { all := *f; return &all }
func (f *fromFirst) clone() state { all := *f; return &all }
func (k *counter) clone() state   { all := *k; return &all }

func (l *ledger) clone() state {
	all := *l
	all.entries = slices.Clone(l.entries)
	return &all
}
