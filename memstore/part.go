package memstore

import (
	"slices"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/meter"
)

// A part is one limit of a layer of a request, on its way through a decision.
type part struct {
	limit  *limit
	bound  *bound // keeps the limit
	sh     *shard
	hash   uint64
	key    string
	weight int64           // its units to one of the request
	answer *stint.Decision // where its own goes, or nil
	slot   []uint64        // the key's, or its overflow cell's; nil if unseen
	meter  *meter.Meter    // that charged
	at     int64           // the time that it decides at, once locked
	moves  uint32          // the shard's when slot was sought
	sought bool
	apart  bool // of a view of one limit by itself
}

func (b *bound) part(v *view, l *limit, h uint64, key string) part {
	return part{limit: l, bound: b, sh: &b.store.shards[b.store.shard(h)], hash: h, key: key, weight: 1, apart: v.apart}
}

func (p *part) table() *table { return p.sh.table(p.limit) }

// parts appends the limits of the layers.
func (s *Store) parts(parts []part, layers []stint.Layer) ([]part, error) {
	for i, layer := range layers {
		b, ok := layer.Bound.(*bound)
		if ok = ok && b.store == s; !ok {
			return nil, layercheck.One(i, &layer, false, 0)
		}
		v := b.view.Load()
		if err := layercheck.One(i, &layer, true, len(v.limits)); err != nil {
			return nil, err
		}
		h := s.seed.hash(layer.Key)
		for k, l := range v.limits {
			for j := range parts {
				if parts[j].hash == h && parts[j].limit == l {
					return nil, layercheck.Twice(b.Name())
				}
			}
			p := b.part(v, l, h, layer.Key)
			p.weight = max(layer.Weight, 1)
			if layer.Answers != nil {
				p.answer = &layer.Answers[k]
			}
			parts = append(parts, p)
		}
	}
	return parts, layercheck.Count(len(parts))
}

// lock takes the locks of all shards that the parts are in, in the order of
// the shards, and returns the time to decide at. Each part's own is taken once:
// between two looks at the time of day that could be set.
func (s *Store) lock(parts []part) (now int64) {
	now = s.lockShards(parts)
	for i := range parts {
		parts[i].at = s.at(parts[i].table(), now)
	}
	return now
}

func (s *Store) lockShards(parts []part) (now int64) {
	now = s.clock.now()
	if alone(parts) {
		parts[0].sh.mu.Lock()
		return parts[0].sh.tick(now)
	}
	var few [8]int
	order := indexes(parts, few[:0])
	for _, i := range order {
		s.shards[i].mu.Lock()
	}
	for _, i := range order {
		now = max(now, s.shards[i].last)
	}
	for _, i := range order {
		s.shards[i].tick(now)
	}
	return now
}

func (s *Store) unlock(parts []part) {
	if alone(parts) {
		parts[0].sh.mu.Unlock()
		return
	}
	var few [8]int
	for _, i := range indexes(parts, few[:0]) {
		s.shards[i].mu.Unlock()
	}
}

// alone reports whether all parts are in one shard.
func alone(parts []part) bool {
	for i := range parts[1:] {
		if parts[i+1].sh != parts[0].sh {
			return false
		}
	}
	return true
}

// indexes appends the shards that the parts are in, sorted, each once.
func indexes(parts []part, order []int) []int {
	for i := range parts {
		order = append(order, parts[i].sh.index)
	}
	slices.Sort(order)
	return slices.Compact(order)
}

// seek finds the part's state, whatever has moved since it was last found.
func (p *part) seek(s *Store, now int64) {
	if p.sought && p.moves == p.sh.moves {
		return
	}
	t := p.table()
	if p.slot = t.find(p.hash); p.slot == nil && !p.sh.roomFor(s, t, now) {
		p.slot = p.sh.cell(s, t, p.hash)
	}
	p.sought, p.moves = true, p.sh.moves
}

// state returns the state to look at: for an unseen key, all zero.
func (p *part) state(s *Store, now int64) []uint64 {
	t := p.table()
	if p.slot != nil {
		return t.state(p.sh, p.slot)
	}
	if t.several {
		if state := p.unmet(s, now); state != nil {
			return state
		}
	}
	if cell := t.shared(s, p.hash); cell != nil {
		return t.state(p.sh, cell) // what a place would inherit
	}
	return p.sh.unseen(t)
}

// charge charges the part, even if there is no room. hasDelay says whether a
// request has got its delay for it.
func (p *part) charge(s *Store, now, units int64, hasDelay bool) {
	state, at := p.room(s, now, units)
	if open := p.sh.openOn(s, p.table(), p.hash); open != nil {
		p.meter.ChargeAmong(&open.Reservations, state, at, units, hasDelay)
	} else {
		p.meter.Charge(state, at, units)
	}
}

// room returns the state to charge, with a place of its own if there is one,
// and the time to decide at.
func (p *part) room(s *Store, now, units int64) (state []uint64, at int64) {
	t := p.table()
	p.seek(s, now)
	if p.slot == nil {
		p.slot = p.sh.place(s, t, p.hash, now, p.at)
		p.sh.forgotten(s, t, p.hash)
		p.moves = p.sh.moves
	}
	p.meter = t.meter
	if t.log() {
		p.slot = p.sh.grow(s, t, p.hash, p.slot, now, units)
		p.moves = p.sh.moves
	}
	return t.state(p.sh, p.slot), p.at
}

// upTo returns the most that passes now, at most cost; 1 where none does, so
// that it is denied with the answer for one unit.
func (s *Store) upTo(parts []part, now, cost int64) int64 {
	most := cost
	for i := range parts {
		p := &parts[i]
		p.seek(s, now)
		most = min(most, describe(p.table().meter, p.state(s, now), p.at, 0, true).Remaining/p.weight)
	}
	if most == 0 {
		return min(cost, 1)
	}
	return most
}
