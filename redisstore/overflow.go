package redisstore

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
)

// A flood of new keys must not fill the server. Each store has a budget of keys that it may
// create. Once that is spent, calls name an overflow key, or cell, beside each state, and the
// script uses it if the state does not exist (see overflow.lua). Existing keys are decided
// as ever, and new keys share cells, so that together they get at most cells × the limit.
// This takes no further round trip.
//
// A new key that later gets a state of its own does not inherit its cell's state, as it
// would in package memstore: during a flood the cells are exhausted, so that every new key
// would be denied, and the cells of other stores are not known here anyway. So a key may
// get its limit twice: once from its cell, and once from its own state.

const (
	newKeysWindow = time.Second // the time that the budget is for; all of it may be spent at once
	briefKey      = time.Second // a key that expires sooner costs nothing, since such keys cannot pile up
	overflowCells = 1024        // how many cells a limit has, in each slot with keys
)

// A budget is how many keys may be created. It is a bucket, kept as the moment when it is
// full again, on its store's clock in ns. It may be used from many goroutines at once.
type budget struct {
	unit int64 // the time that a key costs; 0 without a bound
	full atomic.Int64
}

// newBudget returns a budget of the given number of keys a second, unlimited if it is below
// 0.
func newBudget(keys int) *budget {
	if keys < 0 {
		return &budget{}
	}
	return &budget{unit: max(int64(newKeysWindow)/int64(keys), 1)}
}

// used returns how far from full a budget is at a time. A budget owes at most a window: if
// it seems to owe more, the clock was stepped back, and it owes nothing.
func used(full, now int64) int64 {
	if ahead := full - now; ahead > 0 && ahead <= 2*int64(newKeysWindow) {
		return ahead
	}
	return 0
}

// spent reports whether no key is left at a time.
func (b *budget) spent(now int64) bool {
	return used(b.full.Load(), now)+b.unit > int64(newKeysWindow)
}

// spend takes the given number of keys, which are created already, even if the budget has
// fewer left.
func (b *budget) spend(now, keys int64) {
	if b.unit == 0 || keys == 0 {
		return
	}
	for {
		full := b.full.Load()
		if b.full.CompareAndSwap(full, now+min(used(full, now)+keys*b.unit, 2*int64(newKeysWindow))) {
			return
		}
	}
}

// flooded reports whether new keys on the node of a part share cells now.
func (s *Store) flooded(p *part) bool {
	if s.newKeys.unit == 0 {
		return false
	}
	if s.byRoom {
		if is, known := s.roomy(s.region(p.begin)); known {
			return !is
		}
	}
	return s.newKeys.spent(s.moment())
}

// brought notes that keys were created on the node of a part.
func (s *Store) brought(p *part, keys int64) {
	if keys == 0 {
		return
	}
	s.newKeys.spend(s.moment(), keys)
	if s.byRoom {
		s.fill(s.region(p.begin), keys)
	}
}

// withCells adds to a call a cell for each part, in the slot of the part. Parts of one limit
// and one slot have different cells.
func (s *Store) withCells(parts []part, keys, args []string) (allKeys, allArgs []string) {
	allKeys = append(make([]string, 0, len(keys)+len(parts)), keys...)
	allArgs = append(append(make([]string, 0, 2+len(args)), "O", number(int64(len(parts)))), args...)
	for i := range parts {
		begin, end := s.cell(parts, i)
		allKeys = append(allKeys, state(begin, end, parts[i].limit))
	}
	return allKeys, allArgs
}

// toCells points parts of a reservation to their cells, if the script's digits say that they
// were charged there.
func (s *Store) toCells(parts []part, digits string) {
	all := append([]part(nil), parts...)
	for i := range min(len(parts), len(digits)) {
		if digits[i] == '1' {
			parts[i].begin, parts[i].end = s.cell(all, i)
		}
	}
}

// cell returns the beginning and the end of the names of a part's cell, which is in the slot
// of its key.
func (s *Store) cell(parts []part, at int) (begin, end string) {
	end = s.cellOf(&parts[at])
	twins := int64(0)
	for i := range at {
		if parts[i].limit.segment == parts[at].limit.segment && parts[i].begin == parts[at].begin && s.cellOf(&parts[i]) == end {
			twins++
		}
	}
	if twins > 0 {
		end += ":" + number(twins)
	}
	return parts[at].begin + ":overflow:", end
}

func (s *Store) cellOf(p *part) string {
	return ":" + number(int64(crcOf(p.end))%max(overflowCells*int64(s.names.wide)/slots, 1))
}

// overflowed splits the reply to a call with cells: its last element says for each part
// whether the cell decided. A reply that is no answer has no such element.
func overflowed(reply any) (without any, cells string) {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return reply, ""
	}
	last := len(list) - 1
	cells, _ = list[last].(string)
	return list[:last], cells
}

// countCells counts a decision on cells: digits say which parts a cell decided, and denied
// which limits denied.
func (s *Store) countCells(digits string, denied stint.LimitSet) {
	if !strings.Contains(digits, "1") {
		return
	}
	s.shared.Add(1)
	for i := range denied.Limits() {
		if i < len(digits) && digits[i] == '1' {
			s.sharedDenied.Add(1)
			return
		}
	}
}

// A cellReader is a reader that is told which cells decided; see overflowed.
type cellReader func(reply any, cells string) error

// alone reads the reply to a call without cells.
func (read cellReader) alone(reply any) error { return read(reply, "") }

// evalCells runs the script with cells beside the states. In a slot that is moving, keys and
// cells may be on two nodes: then it runs the script without cells.
func (s *Store) evalCells(ctx context.Context, parts []part, keys, args []string, read cellReader) error {
	by := s.until(ctx)
	allKeys, allArgs := s.withCells(parts, keys, args)
	err := s.evalBy(ctx, by, allKeys, s.clock(allArgs), func(reply any) error { return read(overflowed(reply)) })
	if word(err) == "TRYAGAIN" {
		return s.evalBy(ctx, by, keys, s.clock(args), read.alone)
	}
	return err
}

// evalLong runs the general path on parts, with their cells if shares. The arguments are
// without the clock.
func (s *Store) evalLong(ctx context.Context, parts []part, keys, args []string, shares bool, read cellReader) error {
	switch {
	case shares:
		return s.evalCells(ctx, parts, keys, args, read)
	case strings.Contains("tpukxn", args[0]):
		return s.batched(ctx, true, entriesOf(parts), keys, args, read.alone)
	}
	return s.eval(ctx, keys, s.clock(args), read.alone)
}

// spendLease counts the two keys that a first lease creates: the state, and its leases.
func (s *Store) spendLease(p *part, granted, backlog int64) {
	if s.newKeys.unit > 0 && granted > 0 && p.compiled.fast.fresh(granted, backlog) {
		s.brought(p, 2)
	}
}

// overflows reports whether cells may decide a verb. A reservation of 0 is for a debt, which
// the key itself must bear, and a settlement goes to the state that was charged.
func overflows(verb string, cost string) bool {
	return strings.Contains("tpukxw", verb) || verb == "r" && cost != "0"
}

// spendLong counts the keys that the general path has created: states, unless cells decided,
// and the keys beside them. A reservation has a record and for each layer a hash, which may
// have existed; a push has its number.
func (s *Store) spendLong(verb string, parts []part, a answer, shares bool) {
	if s.newKeys.unit == 0 || verb == "p" || verb == "s" || verb == "f" || verb == "y" {
		return
	}
	made := int64(0)
	if !shares {
		made = madeLong(parts, a)
	}
	switch {
	case !a.allowed():
	case verb == "r":
		made += int64(len(parts)) + 1
	case verb == "n" && made > 0:
		made++
	}
	s.brought(&parts[0], made)
}

// madeLong returns how many states were created.
func madeLong(parts []part, a answer) (made int64) {
	for i := range parts {
		p, one := &parts[i], a[1+i*answersEach:]
		left := int64(0)
		if a[0] <= p.compiled.capacity/p.weight {
			left = p.compiled.capacity - a[0]*p.weight
		}
		if a[0] > 0 && (a.allowed() || p.compiled.limit.CountDenied()) && one[answersRemaining] == left && duration(one[answersReset]) > briefKey {
			made++
		}
	}
	return made
}

// Unless Options.NewKeys says how many keys may be created, a store asks each node how much
// memory it has left, and creates keys while there is some: many at once too, as after a
// restart that has lost all keys. Of what is left below 85 % of the memory, each store takes
// no more than an eighth before it asks again, so that several stores do not fill it
// together. The other 15 % are for Redis' two tables of keys: when they double, they take an
// eighth of what keys take, all at once. If the node does not tell, the rate alone decides.

const (
	roomParts  = 8                      // a store takes one roomParts-th before it asks again
	roomOf     = 0.85                   // the fraction of the server's memory for keys
	roomKey    = 256                    // bytes of a key, with its name and its entry in Redis' tables
	roomSoon   = 100 * time.Millisecond // the least time between questions
	roomOften  = time.Second            // the time between questions while there is plenty
	roomSeldom = time.Minute            // the time between questions to a node that does not tell
)

// A room is how many keys this store may create on a node.
type room struct {
	known    atomic.Bool
	left     atomic.Int64 // how many keys may be created before the next question
	plenty   atomic.Int64 // with fewer left, the next question is due
	checking atomic.Bool  // a question is on its way
	next     atomic.Int64 // the earliest time of the next question, on the store's monotonic clock
}

// roomy reports whether the node of a slot has room for one more key; known is false if the
// node does not tell. fill asks again when keys are created; without room none are, so roomy
// asks again itself.
func (s *Store) roomy(slot uint16) (is, known bool) {
	n := s.nodeOf(slot)
	r := &n.room
	is, known = r.left.Load() > 0, r.known.Load()
	if known && !is && !r.checking.Load() && int64(s.since()) >= r.next.Load() {
		s.checkRoom(n, slot)
	}
	return is, known
}

// fill notes that keys were created on the node of a slot, and asks for the room left when
// that is due.
func (s *Store) fill(slot uint16, keys int64) {
	n := s.nodeOf(slot)
	r := &n.room
	left := r.left.Add(-keys)
	now := int64(s.since())
	if now < r.next.Load() || r.checking.Load() {
		return
	}
	if due := r.next.Load() + int64(roomOften-roomSoon); r.known.Load() && left >= r.plenty.Load() && now < due {
		return
	}
	s.checkRoom(n, slot)
}

// checkRoom asks a node how much room it has, in the background.
func (s *Store) checkRoom(n *node, slot uint16) {
	r := &n.room
	if !r.checking.CompareAndSwap(false, true) {
		return
	}
	if !s.background(func(ctx context.Context) {
		defer r.checking.Store(false)
		pause := roomSoon
		_ = s.eval(ctx, []string{s.names.probe(slot)}, []string{"I"}, func(reply any) error {
			if !r.take(reply) {
				pause = roomSeldom
			}
			return nil
		})
		r.next.Store(int64(s.since() + pause))
	}) {
		r.checking.Store(false)
	}
}

// take reads the answer of a node, and reports whether it says how much room it has.
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
