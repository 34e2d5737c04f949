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

// A flood of new keys must not fill the server. Each store has a budget of keys
// that it may create. Once that is spent, calls name an overflow key beside each
// state, and the script takes it where the state does not exist (see overflow.lua):
// existing keys are decided as ever, and newcomers share cells, so that together
// they get at most cells × the limit. This takes no further round trip.
//
// A newcomer that gets a key of its own later does not inherit its cell's
// state, as it would in package memstore: what other stores have in their cells
// is not known here anyway, and while a flood lasts its cells are exhausted, so
// that every newcomer would be denied. So a key may get its limit twice: once of
// its cell, and once of its own.

const (
	newKeysWindow = time.Second // the budget is for so long, and may be spent at once
	briefKey      = time.Second // a key that is gone by then costs nothing: many cannot heap up
	overflowCells = 1024        // of a limit, as many in each slot that has keys
)

// A budget is how many keys may come into being: a bucket, by the moment at
// which it is full again, on its store's clock in ns. It may be used from many
// goroutines at once.
type budget struct {
	unit int64 // the time that a key takes; 0 where there is no bound
	full atomic.Int64
}

// newBudget returns a budget of the given number of keys a second; below 0
// it is unlimited.
func newBudget(keys int) *budget {
	if keys < 0 {
		return &budget{}
	}
	return &budget{unit: max(int64(newKeysWindow)/int64(keys), 1)}
}

// used returns how far from full it is at a time. No debt is larger than a
// window, so a clock that was stepped back further than that owes nothing.
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

// spend takes the given number of keys, which have been created by now, even if the
// budget has fewer left.
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

// flooded reports whether newcomers on the node of a part share cells now.
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

// brought notes that keys have come into being on the node of a part.
func (s *Store) brought(p *part, keys int64) {
	if keys == 0 {
		return
	}
	s.newKeys.spend(s.moment(), keys)
	if s.byRoom {
		s.fill(s.region(p.begin), keys)
	}
}

// withCells adds to a call an overflow key for each part, in its slot of the
// cluster. Parts of one limit and one slot have different ones.
func (s *Store) withCells(parts []part, keys, args []string) (allKeys, allArgs []string) {
	allKeys = append(make([]string, 0, len(keys)+len(parts)), keys...)
	allArgs = append(append(make([]string, 0, 2+len(args)), "O", number(int64(len(parts)))), args...)
	for i := range parts {
		begin, end := s.cell(parts, i)
		allKeys = append(allKeys, state(begin, end, parts[i].limit))
	}
	return allKeys, allArgs
}

// toCells points the parts of a reservation that were charged on their cells, by
// the digits of the script, to these.
func (s *Store) toCells(parts []part, digits string) {
	all := append([]part(nil), parts...)
	for i := range min(len(parts), len(digits)) {
		if digits[i] == '1' {
			parts[i].begin, parts[i].end = s.cell(all, i)
		}
	}
}

// cell returns where the names of a part's overflow key begin and end: one of a
// few in the slot of its key.
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

// overflowed returns the reply to a call with cells without its end, which says
// for each part whether its cell decided. What is no answer has none.
func overflowed(reply any) (without any, cells string) {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return reply, ""
	}
	last := len(list) - 1
	cells, _ = list[last].(string)
	return list[:last], cells
}

// countCells counts a decision on overflow keys: digits say which were some, and
// the mask which limits denied.
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

// evalCells runs the script with cells beside the states, and without them in a
// slot that is moving: there, keys and cells are not in one place.
func (s *Store) evalCells(ctx context.Context, parts []part, keys, args []string) (reply any, cells string, err error) {
	by := s.until(ctx)
	allKeys, allArgs := s.withCells(parts, keys, args)
	reply, err = s.evalBy(ctx, by, allKeys, s.clock(allArgs))
	if word(err) == "TRYAGAIN" {
		reply, err = s.evalBy(ctx, by, keys, s.clock(args))
		return reply, "", err
	}
	reply, cells = overflowed(reply)
	return reply, cells, err
}

// evalLong runs the script on parts, with their cells where newcomers share them.
// The clock is not among the arguments.
func (s *Store) evalLong(ctx context.Context, parts []part, keys, args []string, shares bool) (reply any, cells string, err error) {
	switch {
	case shares:
		return s.evalCells(ctx, parts, keys, args)
	case strings.Contains("tpukxn", args[0]):
		reply, err = s.batched(ctx, true, entriesOf(parts), keys, args)
	default:
		reply, err = s.eval(ctx, keys, s.clock(args))
	}
	return reply, "", err
}

// spendLease counts a state and the leases beside it.
func (s *Store) spendLease(p *part, granted, backlog int64) {
	if s.newKeys.unit > 0 && granted > 0 && p.compiled.fast.fresh(granted, backlog) {
		s.brought(p, 2)
	}
}

// overflows reports whether a verb may be decided by overflow keys. A reservation
// of nothing is for a debt, which the key itself has to bear, and what is settled
// stands where it was charged.
func overflows(verb string, cost string) bool {
	return strings.Contains("tpukx", verb) || verb == "r" && cost != "0"
}

// spendLong counts the keys that the general path has brought into being: states
// unless cells stood for them, and what is kept beside them. A reservation has a
// record, and for each layer a generation, which may have been there; a push has
// its number.
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

// madeLong returns how many states were made.
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

// How many keys may come into being is a question of how many have room. Unless
// Options.NewKeys says how many they may be, a store asks each node how much
// memory it has left, and brings keys into being as long as it has: also many at
// once, as after a restart that has lost them all. Of what is left up to 85 %
// of the memory, each store takes no more than an eighth before it asks again, so
// that several do not fill it together. The rest is for Redis' two tables of keys:
// when these double, they take another eighth of what keys take, all at once. Where
// the node does not tell, the rate alone decides.

const (
	roomParts  = 8                      // one is taken before the next look
	roomOf     = 0.85                   // of the server's memory is for keys
	roomKey    = 256                    // bytes a key, with its name and its place in Redis' tables
	roomSoon   = 100 * time.Millisecond // between looks
	roomOften  = time.Second            // between looks while there is plenty
	roomSeldom = time.Minute            // between looks at a node that does not tell
)

// A room is how many keys a node has room for, as far as it is this store's.
type room struct {
	known    atomic.Bool
	left     atomic.Int64 // keys until the next look
	plenty   atomic.Int64 // below which that is due
	checking atomic.Bool  // one is on its way
	next     atomic.Int64 // not before, on the store's monotonic clock
}

// roomy reports whether the node of a slot has room for another key: known is
// false where it does not tell. While there is none it has a look when that is due,
// since no key comes into being that would.
func (s *Store) roomy(slot uint16) (is, known bool) {
	n := s.nodeOf(slot)
	r := &n.room
	is, known = r.left.Load() > 0, r.known.Load()
	if known && !is && !r.checking.Load() && int64(s.since()) >= r.next.Load() {
		s.checkRoom(n, slot)
	}
	return is, known
}

// fill notes that keys have come into being on the node of a slot, and has a look
// at what is left when that is due.
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

// checkRoom asks a node how much room there is, in the background.
func (s *Store) checkRoom(n *node, slot uint16) {
	r := &n.room
	if !r.checking.CompareAndSwap(false, true) {
		return
	}
	if !s.background(func(ctx context.Context) {
		defer r.checking.Store(false)
		reply, err := s.eval(ctx, []string{s.names.probe(slot)}, []string{"I"})
		pause := roomSoon
		if err == nil && !r.take(reply) {
			pause = roomSeldom
		}
		r.next.Store(int64(s.since() + pause))
	}) {
		r.checking.Store(false)
	}
}

// take reads the answer of a node, and reports whether it says how much room there is.
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
