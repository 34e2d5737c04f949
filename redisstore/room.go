package redisstore

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// How many keys may come into being is a question of how many have room. Unless
// Options.NewKeys says how many they may be, a store asks each node how much
// memory it has left, and brings keys into being as long as it has: also many at
// once, as after a restart that has lost them all. Of what is left up to nine
// tenths of the memory, each store takes no more than an eighth before it asks
// again, so that several do not fill it together. Where the node does not tell,
// the rate alone decides.

const (
	roomParts  = 8                      // one is taken before the next look
	roomOf     = 0.9                    // of the server's memory is for keys
	roomKey    = 256                    // bytes a key, with its name and its place in Redis' tables
	roomSoon   = 100 * time.Millisecond // between looks
	roomOften  = time.Second            // between looks while there is plenty
	roomSeldom = time.Minute            // between looks at a node that does not tell
)

// A room is how many keys a node has room for, as far as it is this store's.
type room struct {
	known  atomic.Bool
	left   atomic.Int64 // keys until the next look
	plenty atomic.Int64 // below which that is due
	looks  atomic.Bool  // one is on its way
	next   atomic.Int64 // not before, on the store's monotonic clock
}

// roomy reports whether the node of a slot has room for another key: known is
// false where it does not tell.
func (s *Store) roomy(slot uint16) (is, known bool) {
	r := &s.nodeOf(slot).room
	return r.left.Load() > 0, r.known.Load()
}

// fill notes that keys have come into being on the node of a slot, and has a look
// at what is left when that is due.
func (s *Store) fill(slot uint16, keys int64) {
	n := s.nodeOf(slot)
	r := &n.room
	left := r.left.Add(-keys)
	now := int64(s.since())
	if now < r.next.Load() || r.looks.Load() {
		return
	}
	if due := r.next.Load() + int64(roomOften-roomSoon); r.known.Load() && left >= r.plenty.Load() && now < due {
		return
	}
	s.look(n, slot)
}

// look asks a node how much room there is, in the background.
func (s *Store) look(n *node, slot uint16) {
	r := &n.room
	if !r.looks.CompareAndSwap(false, true) {
		return
	}
	if !s.background(func(ctx context.Context) {
		defer r.looks.Store(false)
		reply, err := s.eval(ctx, []string{s.names.probe(slot)}, []string{"I"})
		pause := roomSoon
		if err == nil && !r.take(reply) {
			pause = roomSeldom
		}
		r.next.Store(int64(s.since() + pause))
	}) {
		r.looks.Store(false)
	}
}

// take takes in what a node has answered, and reports whether it tells.
func (r *room) take(reply any) bool {
	list, _ := reply.([]any)
	if len(list) != 2 {
		r.known.Store(false)
		return false
	}
	text := [2]string{}
	text[0], _ = list[0].(string)
	text[1], _ = list[1].(string)
	used, err1 := strconv.ParseFloat(text[0], 64)
	most, err2 := strconv.ParseFloat(text[1], 64)
	if err1 != nil || err2 != nil {
		r.known.Store(false)
		return false
	}
	keys := int64(min(max(most*roomOf-used, 0)/roomParts/roomKey, math.MaxInt32))
	r.left.Store(keys)
	r.plenty.Store(keys / 2)
	r.known.Store(true)
	return true
}
