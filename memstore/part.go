package memstore

import (
	"math/bits"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/layercheck"
	"github.com/stint-dev/stint/meter"
)

// A part is one limit of a layer of a request, on its way through a decision.
type part struct {
	limit  *limit
	bound  *bound // keeps the limit from being released, unless a reservation does
	sh     *shard
	hash   uint64
	weight int64           // how many units one unit of the request costs here
	excuse time.Duration   // how long its reservation excuses denials
	answer *stint.Decision // where to write its own answer, or nil
	slot   []uint64        // the slot of the key, or of its overflow cell; nil if unseen
	at     int64           // the time that it decides at, once locked
	moves  uint32          // shard.moves when slot was sought: the slot is good until it changes
	sought bool
}

// fewParts is how many parts a decision keeps on its stack. For more it takes an array
// from a pool, so that no decision allocates.
const fewParts = 4

var manyParts = sync.Pool{New: func() any { return new([stint.MaxLimits]part) }}

func putParts(many *[stint.MaxLimits]part) {
	clear(many[:]) // or the pool would hold limits
	manyParts.Put(many)
}

// countLimits returns how many limits the layers have, without those of other stores.
func countLimits(layers []stint.Layer) (n int) {
	for i := range layers {
		if b, ok := layers[i].Bound.(*bound); ok {
			n += len(b.view.Load().limits)
		}
	}
	return n
}

// parts appends the limits of a view, for one key.
func (b *bound) parts(parts []part, v *view, h uint64) []part {
	for _, l := range v.limits {
		parts, _ = b.addPart(parts, l, h)
	}
	return parts
}

// addPart appends the part of one limit, for one key. The part is built in place: that saves a
// copy.
func (b *bound) addPart(parts []part, l *limit, h uint64) ([]part, *part) {
	parts = append(parts, part{})
	p := &parts[len(parts)-1]
	p.limit, p.bound, p.sh, p.hash, p.weight = l, b, &b.store.shards[b.store.shard(h)], h, 1
	return parts, p
}

func (p *part) table() *table { return p.sh.table(p.limit.account) }

// parts appends the limits of the layers.
func (s *Store) parts(parts []part, layers []stint.Layer) ([]part, error) {
	var p *part
	for i := range layers {
		layer := &layers[i]
		b, ok := layer.Bound.(*bound)
		if ok = ok && b.store == s; !ok {
			return nil, layercheck.One(i, layer, false, 0)
		}
		v := b.view.Load()
		if err := layercheck.One(i, layer, true, len(v.limits)); err != nil {
			return nil, err
		}
		h := s.seed.hash(layer.Key)
		for k, l := range v.limits {
			for j := range parts {
				if parts[j].hash == h && parts[j].limit.account == l.account {
					return nil, layercheck.Twice(b.Name())
				}
			}
			parts, p = b.addPart(parts, l, h)
			p.weight, p.excuse = max(layer.Weight, 1), layer.Excuses
			if layer.Answers != nil {
				p.answer = &layer.Answers[k]
			}
		}
	}
	return parts, layercheck.Count(len(parts))
}

// lock takes the locks of all shards that the parts are in, in the order of the
// shards, and returns the time to decide at. It reads the time of day once for each
// part (part.at), since the system's clock may be set between two reads.
func (s *Store) lock(parts []part) (now int64) {
	now = s.lockShards(parts)
	for i := range parts {
		parts[i].at = s.at(parts[i].table(), now)
	}
	return now
}

func (s *Store) lockShards(parts []part) (now int64) {
	now = s.clock.now()
	set := shardsOf(parts)
	s.lockSet(set)
	for rest := set; rest != 0; rest &= rest - 1 {
		now = max(now, s.shards[bits.TrailingZeros64(rest)].last)
	}
	for rest := set; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].tick(now)
	}
	return now
}

func (s *Store) unlock(parts []part) { s.unlockSet(shardsOf(parts)) }

// shardsOf returns the shards that the parts are in, as a set of bits.
func shardsOf(parts []part) (set uint64) {
	for i := range parts {
		set |= 1 << parts[i].sh.index
	}
	return set
}

// lockSet takes the locks of a set of shards, in their order.
func (s *Store) lockSet(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (s *Store) unlockSet(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
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

// look returns the state to read, all zero for an unseen key, and the meter that the state
// drains by, or nil if its parameters are those of the part's limit.
func (p *part) look(s *Store, now int64) (state []uint64, old *meter.Meter) {
	p.seek(s, now)
	t, slot := p.table(), p.slot
	if slot == nil {
		slot = t.shared(s, p.hash) // a new slot would inherit this state
	}
	if slot == nil {
		return p.sh.unseen(t), nil
	}
	if t.numbered {
		old = t.foreign(p.limit, slot, p.at)
	}
	return t.state(p.sh, slot), old
}

// describe returns the part's answer to a request that passes or does not.
func (p *part) describe(s *Store, now, units int64, passes bool) (d stint.Decision) {
	if d = p.standing(s, now, units, passes); p.limit.ban != nil {
		p.during(&d, now)
	}
	return d
}

// standing is describe without bans.
func (p *part) standing(s *Store, now, units int64, passes bool) (d stint.Decision) {
	state, old := p.look(s, now)
	if old == nil {
		d.Set(p.limit.meter, p.limit.meter.Answer(state, p.at, units, passes), passes, 0)
		return d
	}
	a, _ := p.limit.meter.Through(state, old, p.at, units)
	if a.Delay = 0; passes { // carryOut sets the delay
		a.RetryAfter = 0
	}
	d.Set(p.limit.meter, a, passes, 0)
	return d
}

// delay returns how long a request that passes now waits before it starts.
func (p *part) delay(s *Store, now, units int64) time.Duration {
	state, old := p.look(s, now)
	if old == nil {
		return p.limit.meter.Delay(state, p.at, units)
	}
	a, _ := p.limit.meter.Through(state, old, p.at, units)
	return a.Delay
}

// adopt converts the part's state to its limit. A key on an overflow cell, whose
// state other keys share, gets its own slot first, if there is room.
func (p *part) adopt(s *Store, now int64) {
	t := p.table()
	if !t.numbered {
		return
	}
	if p.seek(s, now); p.slot == nil && t.shared(s, p.hash) != nil {
		p.room(s, now, 0)
	}
	if p.slot != nil {
		p.sh.adopt(s, t, p.limit, p.hash, p.slot, p.at)
	}
}

// charge charges the part, even if there is no room, by the limit that its state drains
// by. hasDelay says that a request has been told its delay.
func (p *part) charge(s *Store, now, units int64, hasDelay bool) {
	state, at := p.room(s, now, units)
	p.charger().ChargeAmong(p.sh.openOn(s, p.table(), p.hash), state, at, units, hasDelay)
}

// charger returns the meter that the part's slot is charged by.
func (p *part) charger() *meter.Meter {
	if t := p.table(); t.numbered {
		return t.drain(p.slot)
	}
	return p.limit.meter
}

// room returns the state to charge, in a slot of the key's own if there is room for
// one, and the time to decide at.
func (p *part) room(s *Store, now, units int64) (state []uint64, at int64) {
	t := p.table()
	p.seek(s, now)
	if p.slot == nil {
		p.slot = p.sh.newSlot(s, t, p.hash, now, p.at)
		p.sh.forgotten(s, t, p.hash)
		p.moves = p.sh.moves
	}
	if t.log() {
		p.slot = p.sh.grow(s, t, p.hash, p.slot, now, units)
		p.moves = p.sh.moves
	}
	if t.numbered && t.foreign(p.limit, p.slot, p.at) == nil {
		p.sh.adopt(s, t, p.limit, p.hash, p.slot, p.at)
	}
	return t.state(p.sh, p.slot), p.at
}

// upTo returns the most that passes now, at most cost. If nothing passes, it returns 1:
// the request is denied with the answer for one unit.
func (s *Store) upTo(parts []part, now, cost int64) int64 {
	most := cost
	for i := range parts {
		p := &parts[i]
		most = min(most, p.describe(s, now, 0, true).Remaining/p.weight)
	}
	if most == 0 {
		return min(cost, 1)
	}
	return most
}
