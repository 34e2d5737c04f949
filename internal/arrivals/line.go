// Package arrivals is the one order in which all who wait in a process came, and the lines
// in which they stand: for a key of a limiter, for one of a rule, for a place in flight.
//
// A waiter stands in a line for each part of its request, and holds back those that came
// later where it has no room. Where it has, the first of those that wait for another part
// holds back what would take its room (EASY backfilling). Only who is first in each line in
// which it has no room asks the store, by its [Asker]; so a line costs one call a start.
package arrivals

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/internal/uint128"
)

// longestMoment is how far ahead the moment at which a waiter may start is believed, and
// how long it is at least that one holds back others where that is not known.
const longestMoment = time.Second

// order is the one order of arrival. Its lock guards all lines and waiters. Work under it
// takes constant time, or that of the logarithm of those who wait in a line, except where
// costs differ under a leaky_queue.
var order struct {
	sync.Mutex
	n uint64
}

// A Place is what a line waits for: a key under the limits of a name.
type Place struct{ Name, Key string }

// A Part is what a request needs at one place.
type Part struct {
	Lines *Lines
	At    Place
	Cost  int64
}

// An Owner is whose lines they are.
type Owner interface {
	// Watch calls wake whenever something else than time makes room at a place, until stop
	// is called. The first of the line asks every poll all the same; 0 is never.
	Watch(at Place, wake func()) (stop func(), poll time.Duration)
	// Divert says whether anybody waits. The lock of all lines is held.
	Divert(waiting bool)
	// Newcomer returns how long one that came now to the queue of a place would wait there.
	Newcomer(ctx context.Context, at Place) (time.Duration, error)
	// GiveBack settles what was reserved for a place in a queue at what is kept of it.
	GiveBack(ctx context.Context, id string, keep int64)
}

// Lines are the waiters of an owner, in a line for each place that has some. Memory is
// bounded by the number of waiters: a line goes when its last waiter does. The zero value
// with an Owner is ready to use.
type Lines struct {
	Owner Owner
	// Most is how many may wait for room in one line; 0 is any number.
	Most int

	n       atomic.Int64 // len(byPlace), so that a caller who finds none needs no lock
	byPlace map[Place]*line
}

// A line is the waiters of one place. Those in here have no room, as far as is known; those
// in elsewhere have, and wait for another part of their request. Waiters that have been
// admitted and wait for their start, of a leaky_queue only, are in held.
//
// Calls to the store are made without the lock, one at a time for each line: the goroutine
// that sets busy makes them.
type line struct {
	lines     *Lines
	at        Place
	here      rank
	elsewhere rank
	unlooked  []*Waiter   // came since the first of here was last denied
	put       []*Waiter   // would have asked while the line was busy, or stand aside
	pending   uint128.Int // cost of those in here
	beside    uint128.Int // of those who ask now without waiting
	left      uint128.Int // cost of all that have left here
	epoch     uint64      // counts what makes a sum over the line stale
	busy      bool
	stuck     bool          // the first of here was denied, so that those behind it must wait
	again     bool          // room was made since the store was last asked for the line
	poll      time.Duration // how often the first asks at least; 0 for never
	unwatch   func()        // ends that the line is woken when room is made; may be nil

	queue
}

// A stand is a waiter in one of its lines.
type stand struct {
	waiter *Waiter
	line   *line
	cost   int64
	at     int         // in the rank that it is in, or -1
	room   bool        // that is elsewhere
	known  bool        // there is no room: the store said so when it was the first
	asked  bool        // its line is busy on its behalf
	holds  time.Time   // how long it holds back others there while nobody knows when it starts
	before uint128.Int // cost of those in here when it came
	left   uint128.Int // line.left then
}

// A rank is stands by when their waiters came: a heap.
type rank []*stand

func (r rank) Len() int           { return len(r) }
func (r rank) Less(i, j int) bool { return r[i].waiter.arrived < r[j].waiter.arrived }
func (r rank) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].at, r[j].at = i, j
}
func (r *rank) Push(x any) {
	s := x.(*stand)
	s.at = len(*r)
	*r = append(*r, s)
}
func (r *rank) Pop() any {
	last := len(*r) - 1
	s := (*r)[last]
	(*r)[last], *r = nil, (*r)[:last]
	s.at = -1
	return s
}

// first returns the waiter that came first, or nil.
func (r rank) first() *Waiter {
	if len(r) == 0 {
		return nil
	}
	return r[0].waiter
}

// None reports whether nobody waits at a place.
func (ls *Lines) None(at Place) bool {
	if ls.n.Load() == 0 {
		return true
	}
	order.Lock()
	defer order.Unlock()
	return ls.byPlace[at] == nil
}

// Empty reports whether nobody waits at all.
func (ls *Lines) Empty() bool { return ls.n.Load() == 0 }

// Waiting returns how many wait, and in how many lines.
func (ls *Lines) Waiting() (waiters, lines int) {
	order.Lock()
	defer order.Unlock()
	for _, ln := range ls.byPlace {
		waiters += ln.held.Len() + len(ln.here) + len(ln.elsewhere)
	}
	return waiters, len(ls.byPlace)
}

// A watch is what has been arranged for a line that may turn out not to be new.
type watch struct {
	stop func()
	poll time.Duration
	made bool
}

// watch has the line of a place be woken.
func (ls *Lines) watch(at Place) watch {
	stop, poll := ls.Owner.Watch(at, func() { ls.RoomMade(at) })
	return watch{stop, poll, true}
}

// end ends a watch that nobody needs.
func (w watch) end() {
	if w.stop != nil {
		w.stop()
	}
}

// full reports whether no further waiter may join the line of a place.
func (ls *Lines) full(at Place) bool {
	ln := ls.byPlace[at]
	return ls.Most > 0 && ln != nil && len(ln.here) >= ls.Most
}

// lineOf returns the line of a place. A new one is watched.
func (ls *Lines) lineOf(at Place, by watch) *line {
	ln := ls.byPlace[at]
	switch {
	case ln == nil:
		if ls.byPlace == nil {
			ls.byPlace = make(map[Place]*line)
		}
		ln = &line{lines: ls, at: at, unwatch: by.stop, poll: by.poll}
		ls.byPlace[at] = ln
		if ls.n.Add(1) == 1 {
			ls.Owner.Divert(true)
		}
	default:
		by.end()
	}
	return ln
}

// drop removes a line that is no longer needed.
func (ln *line) drop() {
	ls := ln.lines
	if len(ln.here)+len(ln.elsewhere)+len(ln.back) > 0 || !ln.held.Empty() || ln.busy || ls.byPlace[ln.at] != ln {
		return
	}
	delete(ls.byPlace, ln.at)
	if ls.n.Add(-1) == 0 {
		ls.Owner.Divert(false)
	}
	watch{stop: ln.unwatch}.end()
}

// note takes down that w has to look ahead once it is clear that it must wait.
func (ln *line) note(w *Waiter) {
	if len(ln.unlooked) > 2*len(ln.here)+64 { // most have gone
		ln.unlooked = nil
		for _, s := range ln.here {
			if !s.waiter.looked {
				ln.unlooked = append(ln.unlooked, s.waiter)
			}
		}
	}
	ln.unlooked = append(ln.unlooked, w)
}

// enter puts a stand among those without room.
func (ln *line) enter(s *stand) {
	s.room, s.known, s.holds = false, false, time.Time{}
	heap.Push(&ln.here, s)
	ln.pending = ln.pending.Add(uint128.From(uint64(s.cost)))
}

// exit takes a stand out of the rank that it is in.
func (ln *line) exit(s *stand) {
	switch {
	case s.at < 0:
	case s.room:
		held := s.at == 0
		if heap.Remove(&ln.elsewhere, s.at); held {
			ln.roomMade() // what it held back is free, or another holds it
		}
	default:
		first := s.at == 0
		if heap.Remove(&ln.here, s.at); first {
			ln.stuck = false
			if len(ln.here) > 0 {
				ln.here[0].known = false // what it heard when it was the first before may not hold
			}
		}
		cost := uint128.From(uint64(s.cost))
		ln.pending, ln.left = ln.pending.Sub(cost), ln.left.Add(cost)
	}
	ln.epoch++
}

// moves puts a stand among those who have room in its line, or among those who have none.
func (s *stand) moves(room bool) {
	if s.room == room {
		return
	}
	s.line.exit(s)
	if !room {
		s.line.enter(s)
		return
	}
	s.room = true
	heap.Push(&s.line.elsewhere, s)
}

// first reports whether the waiter is the first of those without room in the line.
func (s *stand) first() bool { return !s.room && s.line.here.first() == s.waiter }

// stir wakes the waiters that may have something to do.
func (ln *line) stir() {
	ln.held.Head().Wake()
	ln.here.first().wake()
	if !ln.busy {
		for _, w := range ln.put {
			w.aside = false
			w.wake()
		}
		ln.put = nil
	}
	if ln.stuck {
		for _, w := range ln.unlooked {
			w.wake()
		}
		ln.unlooked = nil
	}
}

// EveryRoomMade is RoomMade of all places.
func (ls *Lines) EveryRoomMade() {
	if ls.Empty() {
		return
	}
	order.Lock()
	defer order.Unlock()
	for _, ln := range ls.byPlace {
		ln.roomMade()
		ln.moveUp()
	}
}

// RoomMade has the line of a place ask the store at once: somebody else than the line has
// made room.
func (ls *Lines) RoomMade(at Place) {
	if ls.Empty() {
		return
	}
	order.Lock()
	defer order.Unlock()
	if ln := ls.byPlace[at]; ln != nil {
		ln.roomMade()
		ln.moveUp()
	}
}

// roomMade has those ask the store at once whose turn it is.
func (ln *line) roomMade() {
	ln.again = true
	if w := ln.here.first(); w != nil {
		w.due, w.aside = time.Time{}, false
		w.wake()
	}
}

// Needed returns what those need who are to pass before a newcomer to a place.
func (ls *Lines) Needed(at Place) uint128.Int {
	order.Lock()
	defer order.Unlock()
	if ln := ls.byPlace[at]; ln != nil {
		return ln.needed()
	}
	return uint128.Int{}
}

func (ln *line) needed() uint128.Int {
	units, _ := ln.reserved(nil)
	return ln.pending.Add(ln.beside).Add(uint128.From(uint64(units)))
}

// Beside returns what others need at each place of a request that does not wait. What it
// needs itself counts as taken for them until end is called.
func Beside(parts []Part) (needed []uint128.Int, end func()) {
	needed, lines := make([]uint128.Int, len(parts)), make([]*line, len(parts))
	order.Lock()
	defer order.Unlock()
	for i, p := range parts {
		if ln := p.Lines.byPlace[p.At]; ln != nil {
			needed[i], lines[i] = ln.needed(), ln
			ln.beside = ln.beside.Add(uint128.From(uint64(p.Cost)))
		}
	}
	return needed, func() {
		order.Lock()
		defer order.Unlock()
		for i, ln := range lines {
			if ln != nil {
				ln.beside = ln.beside.Sub(uint128.From(uint64(parts[i].Cost)))
			}
		}
	}
}

// reserved returns what the first of elsewhere holds back from w, or from a newcomer, and
// until when. It is what it needs at the moment at which its other parts let it pass. Where
// that is not known, it holds for as long as it has waited.
func (ln *line) reserved(w *Waiter) (units int64, until time.Time) {
	if len(ln.elsewhere) == 0 {
		return 0, until
	}
	s := ln.elsewhere[0]
	first := s.waiter
	if w != nil && w.arrived <= first.arrived {
		return 0, until
	}
	now := time.Now()
	if behind, _, _ := first.stance(now); !behind && !first.due.IsZero() && !first.due.After(now.Add(longestMoment)) {
		return max(s.cost-first.by.Refill(first.partOf(s), first.due.Sub(now)), 0), first.due
	}
	if s.holds.IsZero() {
		s.holds = now.Add(max(now.Sub(first.since), longestMoment))
	}
	if now.Before(s.holds) {
		return s.cost, s.holds
	}
	return 0, until
}
