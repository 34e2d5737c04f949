// Package waitqueue is the queue of requests that wait for their start under a
// leaky_queue, for every part of stint that lets requests wait.
//
// A store gives each request a delay, which makes a [Place]: a stretch of the
// limit's time that has been paid for. Waiters and places are kept apart: the
// first waiter starts at the first place, and so on. So when a waiter gives up,
// all behind it move up without being touched, and the surplus is at the end.
// Surplus places go back to the store from the last on, each as long as the store
// has given no later request a delay, since only then can it reuse them. Places
// that cannot go back are taken by later waiters.
package waitqueue

import (
	"slices"
	"sort"
	"time"

	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/internal/uint128"
)

// A Return says who can give a place back to the store.
type Return uint8

const (
	// Kept is a place that cannot be given back.
	Kept Return = iota
	// ByLine is a place that the line gives back, by its reservation.
	ByLine
	// ByWaiter is a place that only the request settles that was charged for it, after
	// it has left the line, wherever it started: it was charged elsewhere too,
	// or its caller has the reservation.
	ByWaiter
)

// A Pace is how fast the queue of a limit drains: Count units in each Period. The zero value is a pace that is
// not known.
type Pace struct {
	Name   string // the limit's own, if it has one
	Period time.Duration
	Count  int64
}

// Span returns how long units take, rounded up.
func (p Pace) Span(units int64) time.Duration {
	return satmath.Duration(uint128.Mul(uint64(units), uint64(p.Period)).Ceil(uint64(p.Count)))
}

// Faster reports whether p is a faster pace of the same limit.
func (p Pace) Faster(than Pace) bool { return p.of(than) && p.Count > than.Count }

// of reports whether two paces are of one limit, by its identity.
func (p Pace) of(other Pace) bool { return p.Name == other.Name && p.Period == other.Period }

func (p Pace) known() bool { return p.Count > 0 }

// A Place is a stretch of time that was charged for one request.
type Place[T any] struct {
	// Start is when the request may start.
	Start time.Time
	// Units is what was charged.
	Units int64
	// Reservation gives the place back, if the line does, as a whole or in multiples
	// of Grain; 0 is 1.
	Reservation T
	Grain       int64
	// Return says who gives it back.
	Return Return
	// Pace is that at which it was charged. If it is not known, a request only moves up to a place
	// that was charged at its cost or more.
	Pace Pace

	owner *Waiter[T] // that it was charged for
	moved bool       // it starts earlier than the store said: see SpeedUp
}

// loose reports whether the place may be given back at any moment, by a request
// that has left.
func (p *Place[T]) loose() bool { return p.Return == ByWaiter && !p.owner.in }

// A Waiter is one request in a line.
type Waiter[T any] struct {
	// Units is how much of the line's places the request takes.
	Units int64
	// Turn receives a value when the waiter should look again. It has a buffer
	// of one, and sending never blocks.
	Turn chan struct{}
	// Of is whatever the line's user wants to find the request by.
	Of any

	own        *Place[T] // that was charged for it
	prev, next *Waiter[T]
	in         bool
}

// In reports whether the waiter is in a line.
func (w *Waiter[T]) In() bool { return w.in }

// Reservation is that of the place which was charged for the waiter.
func (w *Waiter[T]) Reservation() T { return w.own.Reservation }

// Wake has the waiter look again. It does not block.
func (w *Waiter[T]) Wake() {
	if w == nil {
		return
	}
	select {
	case w.Turn <- struct{}{}:
	default: // it will look anyway
	}
}

// A Line is the waiters of one key and the places they wait for. Its zero value
// is ready. It has no lock of its own. Joining, starting and giving up take
// constant time, unless requests of different costs wait together: then joining
// takes time in proportion to those that wait, and giving up too, up to a bound.
type Line[T any] struct {
	head, tail *Waiter[T]
	n          int
	places     []*Place[T] // in order of their starts
	used       int64       // units of the first place that have been taken
	units      int64       // of every waiter and place, while they are even
	uneven     bool
	lent       time.Time // until then a request runs in a place that another may settle
}

// mostTrimmed bounds how many waiters of different costs are looked through
// when one gives up. In longer lines what is left over is kept for newcomers.
const mostTrimmed = 256

// Len returns how many wait.
func (l *Line[T]) Len() int { return l.n }

// Empty reports whether there is nothing to wait for and nothing to give back.
func (l *Line[T]) Empty() bool { return l.n == 0 && len(l.places) == 0 }

// Head returns the first waiter, or nil.
func (l *Line[T]) Head() *Waiter[T] { return l.head }

// Join puts a waiter at the end of the line, with the place that was charged for
// it. Where costs differ it goes before those that start later than its place.
func (l *Line[T]) Join(w *Waiter[T], p Place[T], now time.Time) {
	if l.n == 0 { // what is left has passed, or is about to go back
		l.drop(sort.Search(len(l.places), func(i int) bool { return !l.places[i].Start.Before(now) }))
	}
	if l.Empty() {
		l.units, l.uneven = w.Units, false
	}
	l.uneven = l.uneven || w.Units != l.units || p.Units != l.units
	at := len(l.places)
	for at > 0 && l.places[at-1].Start.After(p.Start) && (at > 1 || l.used == 0) {
		at--
	}
	before := l.tail
	if l.uneven && at < len(l.places) {
		before = l.startsBy(p.Start)
	}
	p.owner, w.own, w.in = w, &p, true
	l.insert(w, before)
	l.places = slices.Insert(l.places, at, &p)
	if at == 0 || w == l.head {
		l.head.Wake()
	}
}

// startsBy returns the last waiter that starts by then.
func (l *Line[T]) startsBy(then time.Time) (last *Waiter[T]) {
	from := spot{0, l.used}
	for w := l.head; w != nil; w = w.next {
		start, end, ok := l.fit(from, w.Units)
		if !ok || l.time(start).After(then) {
			break
		}
		last, from = w, end
	}
	return last
}

// drop forgets the first n places.
func (l *Line[T]) drop(n int) {
	if n > 0 {
		clear(l.places[:n])
		l.places, l.used = l.places[n:], 0
	}
}

// insert links w behind another waiter; nil is the front.
func (l *Line[T]) insert(w, before *Waiter[T]) {
	w.prev = before
	if before == nil {
		w.next, l.head = l.head, w
	} else {
		w.next, before.next = before.next, w
	}
	if w.next == nil {
		l.tail = w
	} else {
		w.next.prev = w
	}
	l.n++
}

// remove unlinks w.
func (l *Line[T]) remove(w *Waiter[T]) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
		l.head.Wake()
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	w.prev, w.next, w.in = nil, nil, false
	l.n--
}

// A spot is a point in the places: an index, and units into that place.
type spot struct {
	at   int
	used int64
}

// fit returns where a request of the given units starts that may not start before
// from, and where the next one may: the first stretch that is long enough, of
// one place or of several adjacent ones.
func (l *Line[T]) fit(from spot, units int64) (start, end spot, ok bool) {
	for start = from; start.at < len(l.places); start = (spot{end.at + 1, 0}) {
		end.at = start.at
		room := l.places[start.at].Units - start.used
		for room < units && l.follows(end.at) {
			end.at++
			room += l.places[end.at].Units
		}
		if room < units {
			continue
		}
		if end.used = l.places[end.at].Units - (room - units); end.used == l.places[end.at].Units || !l.places[end.at].Pace.known() || l.crossed(end) {
			end = spot{end.at + 1, 0}
		}
		return start, end, true
	}
	return start, end, false
}

// crossed reports whether a spot is later than the next place, which was charged at a faster pace: what is
// left of its place passes unused, since the next waiter would start before or together with this one.
func (l *Line[T]) crossed(s spot) bool {
	p := l.places[s.at]
	return s.at+1 < len(l.places) && l.time(s).Sub(l.places[s.at+1].Start) > p.Pace.Span(1)/2
}

// follows reports whether the place after i begins where place i ends: the store
// gave no other request a start in between, which would take a unit's time. Starts
// are rounded, so half of that is enough to tell. A place that a request may settle
// does not count, so that the request does
// not give back the place that it started in.
func (l *Line[T]) follows(i int) bool {
	if i+1 == len(l.places) || !l.places[i].Pace.known() || l.places[i].Return == ByWaiter || l.places[i+1].Return == ByWaiter {
		return false
	}
	next := l.places[i+1]
	return next.Pace.known() && next.Start.Sub(l.endOf(l.places[i])).Abs() < min(l.places[i].Pace.Span(1), next.Pace.Span(1))/2
}

// time returns when a request at a spot starts.
func (l *Line[T]) time(s spot) time.Time {
	at := l.places[s.at].Start
	if s.used > 0 {
		at = at.Add(l.places[s.at].Pace.Span(s.used))
	}
	return at
}

// StartOf returns when w starts if no waiter gives up. It takes constant time for
// the head, and time in proportion to the waiters ahead for others.
func (l *Line[T]) StartOf(w *Waiter[T]) time.Time {
	from := spot{0, l.used}
	for u := l.head; u != nil; u = u.next {
		start, end, ok := l.fit(from, u.Units)
		if !ok {
			break
		}
		if u == w {
			return l.time(start)
		}
		from = end
	}
	return w.own.Start // costs differ, and other requests have starts in between
}

// Spare returns when a request would start that joined now with a place: it may start in what the waiters
// leave of theirs.
func (l *Line[T]) Spare(p Place[T]) time.Time {
	from := l.needed()
	l.places = append(l.places, &p)
	defer func() { l.places = l.places[:len(l.places)-1] }()
	if at, _, ok := l.fit(from, p.Units); ok {
		return l.time(at)
	}
	return p.Start
}

// End returns when the last waiter's part of the places ends, as far as that is
// known, and how long one unit takes; without Span, when it starts.
func (l *Line[T]) End() (end time.Time, unit time.Duration) {
	p := l.tail.own
	if last := l.lastNeeded(); last >= 0 {
		p = l.places[last]
	}
	if !p.Pace.known() {
		return p.Start, 0
	}
	return p.Start.Add(p.Pace.Span(p.Units)), p.Pace.Span(1)
}

// Charged reports whether no place is of other numbers of a limit that has the pace now: such a place gives
// nothing back.
func (l *Line[T]) Charged(now Pace) bool {
	return !slices.ContainsFunc(l.places, func(p *Place[T]) bool {
		return p.Pace.of(now) && (p.moved || p.Pace != now)
	})
}

// SpeedUp has the places that were charged at a slower pace start as early as if all that is in the
// queue took as long as the pace says from now on, and reports whether there are any. The head may have
// to look again.
func (l *Line[T]) SpeedUp(pace Pace, now time.Time) (sped bool) {
	for _, p := range l.places {
		if wait := p.Start.Sub(now); pace.Faster(p.Pace) {
			if wait > 0 {
				wait = satmath.Duration(uint128.Mul(uint64(wait), uint64(p.Pace.Count)).Ceil(uint64(pace.Count)))
			} else {
				wait = -satmath.Duration(uint128.Mul(uint64(-wait), uint64(p.Pace.Count)).Floor(uint64(pace.Count)))
			}
			p.Start, p.Pace, p.moved, sped = now.Add(wait), pace, true, true
		}
	}
	slices.SortStableFunc(l.places, func(a, b *Place[T]) int { return a.Start.Compare(b.Start) })
	return sped
}

// Disband takes all waiters out of the line and returns them in order. Their places
// are left over, for [Line.Surplus].
func (l *Line[T]) Disband() []*Waiter[T] {
	for _, p := range l.places {
		if p.Return == ByWaiter && p.owner.in {
			p.Return = ByLine // its request has not got it yet
		}
	}
	waiters := make([]*Waiter[T], 0, l.n)
	for w := l.head; w != nil; w = w.next {
		waiters = append(waiters, w)
	}
	for _, w := range waiters {
		w.prev, w.next, w.in = nil, nil, false
	}
	l.head, l.tail, l.n = nil, nil, 0
	return waiters
}

// Start takes the head out of the line: its start has come.
func (l *Line[T]) Start() {
	w := l.head
	if start, end, ok := l.fit(spot{0, l.used}, w.Units); ok {
		if p := l.places[start.at]; p.Return == ByWaiter && p.owner != w {
			l.lent = l.endOf(p)
		}
		l.drop(end.at)
		l.used = end.used
	}
	l.remove(w)
	l.prune()
}

// endOf returns when a place ends.
func (l *Line[T]) endOf(p *Place[T]) time.Time {
	if !p.Pace.known() {
		return p.Start.Add(1<<63 - 1) // not known: for as long as there are waiters
	}
	return p.Start.Add(p.Pace.Span(p.Units))
}

// Leave takes w out of the line: it gives up, and those behind it move up. What
// is then left over is for [Line.Surplus]. If w's place is returnable by the
// waiter, Leave reports whether it may be: not if the store could then free a
// place before it that another waiter needs.
func (l *Line[T]) Leave(w *Waiter[T], now time.Time) (returns bool) {
	for w == l.head && len(l.places) > 0 && l.time(spot{0, l.used}).Before(now) {
		l.drop(1) // too short for w, and its time has come
	}
	l.remove(w)
	defer l.prune()
	if w.own.Return != ByWaiter {
		return false
	}
	last, k := len(l.places)-1, l.lastNeeded()
	at := last
	for at >= max(k, 0) && l.places[at] != w.own {
		at--
	}
	switch {
	case at < max(k, 0) || at < last && at == k:
		return true // it has passed, or there are later ones
	case l.n > 0 && (at <= k || l.borrowed(k)) || at == 0 && l.used > 0:
		w.own.Return = Kept
		return false
	case at == last:
		l.places[last] = nil
		l.places = l.places[:last]
	}
	return true
}

// borrowed reports whether the last waiter is to start in the place at k of a
// request that may settle it: a later place has to stand until then, or the
// store would let others have that one too.
func (l *Line[T]) borrowed(k int) bool {
	return k >= 0 && l.n > 0 && l.places[k].Return == ByWaiter && l.places[k].owner != l.tail
}

// prune removes places at the end that no waiter needs and that may be given back
// at any moment.
func (l *Line[T]) prune() {
	for last := len(l.places) - 1; last > l.lastNeeded() && l.places[last].loose(); last-- {
		l.places[last] = nil
		l.places = l.places[:last]
	}
}

// Surplus takes the last place out of the line if no waiter needs any of it: the
// caller settles the reservation at keep, in its own units, which is what starts in
// it have used. It must do so before it calls Surplus again, since a store frees a place
// only while no later one stands.
func (l *Line[T]) Surplus(now time.Time) (reservation T, keep int64, ok bool) {
	if l.n == 0 && now.Before(l.lent) {
		l.places, l.used = nil, 0
	}
	end, last := l.needed(), len(l.places)-1
	if last < 0 || end.at > last || end.at == last && end.used == l.places[last].Units {
		return reservation, 0, false
	}
	p := l.places[last]
	if p.Return != ByLine {
		if l.n == 0 { // nor does a store free anything before it
			l.places, l.used = nil, 0
		}
		return reservation, 0, false
	}
	if end.at == last {
		keep = end.used
	}
	switch {
	case keep > 0 && l.n > 0:
		return reservation, 0, false // it stays for a later waiter
	case l.borrowed(l.lastNeeded()):
		return reservation, 0, false
	default:
		if last > 0 && l.places[last-1].Return == ByLine && l.places[last-1].Pace.known() && !l.follows(last-1) {
			l.places[last-1].Return = Kept // the place of another request is in between
		}
		l.places[last] = nil
		if l.places = l.places[:last]; last == 0 {
			l.used = 0
		}
		l.prune()
	}
	return p.Reservation, ceilDiv(keep, max(p.Grain, 1)), true
}

// lastNeeded returns the index of the last place that a waiter needs, or -1.
func (l *Line[T]) lastNeeded() int {
	if l.n == 0 {
		return -1
	}
	end := l.needed()
	if end.used == 0 {
		end.at--
	}
	return min(end.at, len(l.places)-1)
}

// needed returns where the last waiter's part of the places ends.
func (l *Line[T]) needed() spot {
	switch {
	case l.n == 0:
		return spot{0, l.used}
	case !l.uneven:
		return spot{l.n, 0}
	case l.n > mostTrimmed:
		return spot{len(l.places), 0}
	}
	from := spot{0, l.used}
	for w := l.head; w != nil; w = w.next {
		_, end, ok := l.fit(from, w.Units)
		if !ok {
			return spot{len(l.places), 0}
		}
		from = end
	}
	return from
}

func ceilDiv(a, b int64) int64 { return a/b + min(a%b, 1) }
