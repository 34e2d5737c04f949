package memstore

import (
	"slices"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/meter"
)

// A request is one layer on its way through a decision.
type request struct {
	limit  *limit
	bound  *bound // keeps the limit
	sh     *shard
	hash   uint64
	key    string
	weight int64           // units of this layer to one of the request
	answer *stint.Decision // where this layer's own goes, or nil
	slot   []uint64        // the key's, or its overflow cell's; nil if unseen
	meter  *meter.Meter    // that charged
	at     int64           // the time that this layer decides at, once locked
	moves  uint32          // the shard's when slot was sought
	sought bool
	apart  bool // of a view of one limit by itself
}

func (b *bound) request(v *view, l *limit, h uint64, key string) request {
	return request{limit: l, bound: b, sh: &b.store.shards[b.store.shard(h)], hash: h, key: key, weight: 1, apart: v.apart}
}

func (r *request) table() *table { return r.sh.table(r.limit) }

// requests appends the layers, flattened.
func (s *Store) requests(rs []request, layers []stint.Layer) ([]request, error) {
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
			for j := range rs {
				if rs[j].hash == h && rs[j].limit == l {
					return nil, layercheck.Twice(b.Name())
				}
			}
			r := b.request(v, l, h, layer.Key)
			r.weight = max(layer.Weight, 1)
			if layer.Answers != nil {
				r.answer = &layer.Answers[k]
			}
			rs = append(rs, r)
		}
	}
	return rs, layercheck.Count(len(rs))
}

// lock takes the locks of all shards that the requests are in, in the order of
// the shards, and returns the time to decide at. Each layer's own is taken once:
// between two looks at the time of day that could be set.
func (s *Store) lock(rs []request) (now int64) {
	now = s.lockShards(rs)
	for i := range rs {
		rs[i].at = s.at(rs[i].table(), now)
	}
	return now
}

func (s *Store) lockShards(rs []request) (now int64) {
	now = s.clock.now()
	if alone(rs) {
		rs[0].sh.mu.Lock()
		return rs[0].sh.tick(now)
	}
	var few [8]int
	order := indexes(rs, few[:0])
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

func (s *Store) unlock(rs []request) {
	if alone(rs) {
		rs[0].sh.mu.Unlock()
		return
	}
	var few [8]int
	for _, i := range indexes(rs, few[:0]) {
		s.shards[i].mu.Unlock()
	}
}

// alone reports whether all requests are in one shard.
func alone(rs []request) bool {
	for i := range rs[1:] {
		if rs[i+1].sh != rs[0].sh {
			return false
		}
	}
	return true
}

// indexes appends the shards that the requests are in, sorted, each once.
func indexes(rs []request, order []int) []int {
	for i := range rs {
		order = append(order, rs[i].sh.index)
	}
	slices.Sort(order)
	return slices.Compact(order)
}

// seek finds the request's state, whatever has moved since it was last found.
func (r *request) seek(s *Store, now int64) {
	if r.sought && r.moves == r.sh.moves {
		return
	}
	t := r.table()
	if r.slot = t.find(r.hash); r.slot == nil && !r.sh.roomFor(s, t, now) {
		r.slot = r.sh.cell(s, t, r.hash)
	}
	r.sought, r.moves = true, r.sh.moves
}

// state returns the state to look at: for an unseen key, all zero.
func (r *request) state(s *Store, now int64) []uint64 {
	t := r.table()
	if r.slot != nil {
		return t.state(r.sh, r.slot)
	}
	if t.several {
		if state := r.unmet(s, now); state != nil {
			return state
		}
	}
	if cell := t.shared(s, r.hash); cell != nil {
		return t.state(r.sh, cell) // what a place would inherit
	}
	return r.sh.unseen(t)
}

// charge charges the request's layer, even if there is no room. told says whether a
// request has got its delay for it.
func (r *request) charge(s *Store, now, units int64, told bool) {
	state, at := r.room(s, now, units)
	if open := r.sh.openOn(s, r.table(), r.hash); open != nil {
		r.meter.ChargeAmong(&open.Reservations, state, at, units, told)
	} else {
		r.meter.Charge(state, at, units)
	}
}

// room returns the state to charge, with a place of its own if there is one,
// and the time to decide at.
func (r *request) room(s *Store, now, units int64) (state []uint64, at int64) {
	t := r.table()
	r.seek(s, now)
	if r.slot == nil {
		r.slot = r.sh.place(s, t, r.hash, now, r.at)
		r.sh.forgotten(s, t, r.hash)
		r.moves = r.sh.moves
	}
	r.meter = t.meter
	if t.log() {
		r.slot = r.sh.grow(s, t, r.hash, r.slot, now, units)
		r.moves = r.sh.moves
	}
	return t.state(r.sh, r.slot), r.at
}

// upTo returns the most that passes now, at most cost; 1 where none does, so
// that it is denied with the answer for one unit.
func (s *Store) upTo(rs []request, now, cost int64) int64 {
	most := cost
	for i := range rs {
		r := &rs[i]
		r.seek(s, now)
		most = min(most, describe(r.table().meter, r.state(s, now), r.at, 0, true).Remaining/r.weight)
	}
	if most == 0 {
		return min(cost, 1)
	}
	return most
}
