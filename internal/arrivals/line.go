// Package arrivals keeps the order in which requests that wait in this process arrived, and the lines
// in which they stand: for a key of a limiter, for a key of a rule, for a place in flight.
//
// A waiter stands in a line for each part of its request. In a line in which it has no room, it holds
// back all that came later. In a line in which it has room, but waits for another part, only the first
// such waiter holds back others: those that would take its room (EASY backfilling). A waiter asks the
// store for its request, by its [Asker], only while it is first in each line in which it has no room.
// So a line costs about one call to the store for each start, however many wait.
package arrivals

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/internal/waitqueue"
)

// longestMoment is how far ahead a waiter's expected start is believed. It is also the least time for
// which a waiter without one holds back others.
const longestMoment = time.Second

// order numbers the waiters of the process. Its lock guards all lines and waiters. Work under it takes
// constant or logarithmic time for each waiter, and more only where costs differ under a leaky_queue;
// Waiting visits every line, and EveryRoomMade every waiter.
var order struct {
	sync.Mutex
	n uint64
}

// A Place identifies a line: its waiters wait for a key, under the limits of a name.
type Place struct{ Name, Key string }

// A Part is what a request needs at one place: Cost units, in the line that Lines has there.
type Part struct {
	Lines *Lines
	At    Place
	Cost  int64
}

// An Owner connects its [Lines] with a store.
type Owner interface {
	// Watch calls wake whenever something other than time makes room at a place, until stop is
	// called. The first waiter also asks the store every poll; 0 means never. stop may be nil.
	Watch(at Place, wake func()) (stop func(), poll time.Duration)
	// Divert learns whether anybody waits, when that changes. The lock of all lines is held.
	Divert(waiting bool)
	// Newcomer returns how long a request that joined the leaky_queue of a place now would wait, and
	// the queue's pace.
	Newcomer(ctx context.Context, at Place) (time.Duration, waitqueue.Pace, error)
	// GiveBack settles the reservation of a place in a leaky_queue at keep units.
	GiveBack(ctx context.Context, id string, keep int64)
}

// Lines are the lines of an owner: one for each place where somebody waits. A line goes when its last
// waiter does, so memory is bounded by the number of waiters. The zero value with an Owner is ready
// to use, from many goroutines at once.
type Lines struct {
	Owner Owner
	// Most is how many waiters without room one line may have; 0 means any number.
	Most int

	n       atomic.Int64 // len(byPlace); a caller that reads 0 needs no lock
	old     atomic.Int64 // until when limits from before a change may be in force, in ns since 1970; 0 for none
	byPlace map[Place]*line
	changed time.Time // when limits have changed last
}

// A line has the waiters of one place. Those in here have no room, as far as is known. Those in
// elsewhere have room, and wait for another part of their request. Those in held, under a leaky_queue
// only, have been admitted and wait for their start.
//
// The store is called without the lock, and for each line by one goroutine at a time: the one that
// has set busy.
type line struct {
	lines     *Lines
	at        Place
	here      rank
	elsewhere rank
	unlooked  []*Waiter   // waiters to wake once the line is stuck: see note
	put       []*Waiter   // waiters to wake once the line is not busy; some stand aside
	pending   uint128.Int // cost of the waiters in here
	beside    uint128.Int // cost of requests that ask now and do not wait
	costs     tally       // pending, by the numbers of stands
	epoch     uint64      // counts what held waiters give back, and their starts
	busy      bool
	stuck     bool          // the first of here was denied, so those behind it must wait
	again     bool          // room was made since the store was last asked for the line
	fits      int64         // for how many units there is room, as one of the line has heard
	denied    denial        // the last one
	made      time.Time     // when something was last given back
	poll      time.Duration // how often the first waiter asks at least; 0 means never
	unwatch   func()        // stops the Owner's watch; may be nil

	queue
}

// A stand is the position of a waiter in one of its lines.
type stand struct {
	waiter *Waiter
	line   *line
	cost   int64
	at     int       // its index in here or in elsewhere; -1 if it is in neither
	room   bool      // it is in elsewhere, not in here
	known  bool      // as the first of here, it heard from the store that there is no room
	asked  bool      // the line is busy for this waiter
	over   bool      // it needs more than the limits let pass, unless they change again
	holds  time.Time // until when, in elsewhere, it holds back others while its start is not known
	number int       // its place in line.costs; later waiters have greater numbers
}

// A rank is a heap of stands, by the arrival of their waiters.
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

// Empty reports whether nobody waits at any place.
func (ls *Lines) Empty() bool { return ls.n.Load() == 0 }

// Waiting returns how many waiters there are, and in how many lines. A waiter counts in each line in
// which it stands.
func (ls *Lines) Waiting() (waiters, lines int) {
	order.Lock()
	defer order.Unlock()
	for _, ln := range ls.byPlace {
		waiters += ln.held.Len() + len(ln.here) + len(ln.elsewhere)
	}
	return waiters, len(ls.byPlace)
}

// A watch is a watch of an Owner for a new line. It is made without the lock, so the line may exist
// by the time it is used.
type watch struct {
	stop func()
	poll time.Duration
	made bool
}

// watch asks the owner to wake the line of a place.
func (ls *Lines) watch(at Place) watch {
	stop, poll := ls.Owner.Watch(at, func() { ls.RoomMade(at) })
	return watch{stop, poll, true}
}

func (w watch) end() {
	if w.stop != nil {
		w.stop()
	}
}

// full reports whether no further waiter without room may join the line of a place.
func (ls *Lines) full(at Place) bool {
	ln := ls.byPlace[at]
	return ls.Most > 0 && ln != nil && len(ln.here) >= ls.Most
}

// lineOf returns the line of a place. A new line keeps the watch by; otherwise lineOf ends it.
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

// drop removes the line if nobody needs it any longer.
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

// note notes that w is to be woken, and to look ahead, once the line is stuck: then w must wait.
func (ln *line) note(w *Waiter) {
	if len(ln.unlooked) > 2*len(ln.here)+64 { // most of them have left
		ln.unlooked = nil
		for _, s := range ln.here {
			if !s.waiter.looked {
				ln.unlooked = append(ln.unlooked, s.waiter)
			}
		}
	}
	ln.unlooked = append(ln.unlooked, w)
}

func (ln *line) enter(s *stand) {
	s.room, s.known, s.holds = false, false, time.Time{}
	heap.Push(&ln.here, s)
	ln.charge(s)
}

// charge counts the cost of a stand in here.
func (ln *line) charge(s *stand) {
	cost := uint128.From(uint64(s.cost))
	ln.pending = ln.pending.Add(cost)
	ln.costs.add(s.number, cost)
}

// number gives a stand its number in line.costs. Once more than half of
// the numbers are of waiters who have left, all stands are numbered anew.
func (ln *line) number(s *stand) {
	if len(ln.costs) > 2*(len(ln.here)+len(ln.elsewhere))+64 {
		ln.renumber()
	}
	s.number = ln.costs.next()
}

// renumber numbers the stands in here and in elsewhere by arrival. Held waiters have no numbers.
func (ln *line) renumber() {
	ln.costs, ln.pending = nil, uint128.Int{}
	all := slices.Concat(ln.here, ln.elsewhere)
	slices.SortFunc(all, func(a, b *stand) int { return cmp.Compare(a.waiter.arrived, b.waiter.arrived) })
	for _, s := range all {
		if s.number = ln.costs.next(); !s.room {
			ln.charge(s)
		}
	}
}

func (ln *line) exit(s *stand) {
	switch {
	case s.at < 0:
	case s.room:
		held := s.at == 0
		if heap.Remove(&ln.elsewhere, s.at); held {
			ln.roomMade() // the room that it held back is free, or the next one holds back less
		}
	default:
		first := s.at == 0
		if heap.Remove(&ln.here, s.at); first {
			ln.stuck = false
			if len(ln.here) > 0 {
				ln.here[0].known = false // it may have been first before: its answer may be out of date
			}
		}
		cost := uint128.From(uint64(s.cost))
		ln.pending = ln.pending.Sub(cost)
		ln.costs.remove(s.number, cost)
	}
}

// moves puts a stand into elsewhere if it has room, and into here if not.
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

// A denial is what a waiter has heard of one part: the cost has room from until on, if nothing is given
// back before.
type denial struct {
	arrived      uint64
	cost         int64
	asked, until time.Time
}

// lacked notes that the store had no room for the stand, when it was asked.
func (s *stand) lacked(asked time.Time, again time.Duration) {
	order.Lock()
	defer order.Unlock()
	s.line.fits = min(s.line.fits, s.cost-1)
	s.line.denied = denial{s.waiter.arrived, s.cost, asked, asked.Add(again)}
}

// fits reports whether one before the stand has heard of room for as much: it need not ask again.
func (s *stand) fits() bool {
	order.Lock()
	defer order.Unlock()
	return s.cost <= s.line.fits
}

// first reports whether the waiter is the first of here.
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

// Old reports whether what is in use may come back by the numbers of limits from before a change. Once a
// request has passed, it comes back by the new numbers, and that may be sooner than an answer said.
func (ls *Lines) Old() bool {
	old := ls.old.Load()
	return old != 0 && time.Now().UnixNano() < old
}

// EveryRoomMade is [Lines.RoomMade] for every place where somebody waits, under limits that may have
// changed. A waiter that needs more than capacity asks the store at once, wherever in its line it
// stands, and so hears that it can never pass. Within drains, all that is in use comes back by the numbers
// from before. Held waiters start by the pace of a leaky_queue, where that is faster than theirs; sped has
// their places.
func (ls *Lines) EveryRoomMade(capacity int64, drains time.Duration, pace waitqueue.Pace) (sped []Place) {
	until := time.Now().UnixNano()
	ls.old.Store(max(ls.old.Load(), until+min(int64(drains), math.MaxInt64-until)))
	order.Lock()
	defer order.Unlock()
	ls.changed = time.Now()
	for _, ln := range ls.byPlace {
		for _, s := range slices.Concat(ln.here, ln.elsewhere) {
			if s.cost > capacity {
				s.over = true
				s.waiter.wake()
			}
		}
		if ln.held.SpeedUp(pace, ls.changed) {
			sped = append(sped, ln.at)
		}
		ln.made = time.Now()
		ln.roomMade()
		ln.moveUp()
	}
	return sped
}

// RoomMade tells the line of a place that something other than the line has made room. The line asks
// the store at once.
func (ls *Lines) RoomMade(at Place) {
	if ls.Empty() {
		return
	}
	order.Lock()
	defer order.Unlock()
	if ln := ls.byPlace[at]; ln != nil {
		ln.made = time.Now()
		ln.roomMade()
		ln.moveUp()
	}
}

// roomMade makes the first of here ask the store at once.
func (ln *line) roomMade() {
	ln.again = true
	if w := ln.here.first(); w != nil {
		w.due, w.aside = time.Time{}, false // opens stays valid until it has asked
		w.wake()
	}
}

// Needed returns the units that the waiters who come before a newcomer need at a place.
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

// Beside returns the units that others need at each place of a request that does not wait. Until end
// is called, others count the cost of this request as needed, too.
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

// reserved returns how many units the first of elsewhere holds back from w, or from a newcomer if w is
// nil, and until when: until its other parts let it pass, it holds back the units of its cost that do
// not come back by then. If that moment is not known, it holds back all for as long as it has waited.
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
	if behind, _, _ := first.stance(now); !behind && !first.opens.IsZero() && !first.opens.After(now.Add(longestMoment)) {
		return max(s.cost-first.by.Refill(first.partOf(s), first.opens.Sub(now)), 0), first.opens
	}
	if s.holds.IsZero() {
		s.holds = now.Add(max(now.Sub(first.since), longestMoment))
	}
	if now.Before(s.holds) {
		return s.cost, s.holds
	}
	return 0, until
}
