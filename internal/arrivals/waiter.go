package arrivals

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/stint-dev/stint/internal/uint128"
	"github.com/stint-dev/stint/internal/waitqueue"
)

// An Asker asks the store for one waiter. All methods but Refill are called by one goroutine at a
// time, without the lock of the lines. An error ends the wait.
type Asker interface {
	// Take takes what the request costs, or says when it may pass. If later is above 0, it takes
	// nothing, and answers that the request may pass after later: it leaves its room to others at
	// the parts of which to has a bit.
	Take(ctx context.Context, later time.Duration, to uint64) (Answer, error)
	// Look says whether one part would pass by itself. It takes nothing.
	Look(ctx context.Context, part int) (Answer, error)
	// With returns a bit for each part that would lack room if it took more[part] units more, and
	// after how long all would have room, or Unknown.
	With(ctx context.Context, more []int64) (lacks uint64, again time.Duration, err error)
	// Ahead is called once, when it is clear that the request must wait, unless it has asked the
	// store by then: the waiters before it were denied.
	Ahead(ctx context.Context) error
	// Refill returns how many units a part gets back in a time, as far as that is known. The lock
	// of the lines is held.
	Refill(part int, d time.Duration) int64
}

// An Answer is what the store told an [Asker].
type Answer struct {
	Passes bool
	// Again is the wait after which the request may pass, or Unknown.
	Again time.Duration
	// Lacks has a bit for each part without room. In a denial, 0 means that no part has room.
	Lacks uint64
	// Place is what was charged for a request of one part that passes. Under a leaky_queue it may
	// start later. If Place is nil, the request starts now.
	Place *waitqueue.Place[string]
}

// Unknown is a wait of which nobody knows the end: the line is told of room, or asks again by its poll.
const Unknown = time.Duration(math.MaxInt64)

// A Waiter is a request that waits. It stands in a line for each of its parts. One goroutine at a
// time acts for it.
type Waiter struct {
	by       Asker
	arrived  uint64 // its number in the order of arrival
	since    time.Time
	stands   []stand
	only     [1]stand // the array of stands for one part
	held     waitqueue.Waiter[string]
	due      time.Time // when to ask the store next; zero means now
	opens    time.Time // when all parts have room, as the store said; zero if that is not known
	admitted bool
	looked   bool // it has had its turn to look ahead
	seated   bool // it knows that it must wait
	aside    bool // it asks after the waiters to which it yields
	out      bool // it has left its lines
}

// All has the bits of all parts.
const All = ^uint64(0)

// Join puts a new waiter into the line of each part. lacks has a bit for each part without room, as
// far as is known. Join returns false, and the waiter is in no line, if one of these lines is full.
func (w *Waiter) Join(by Asker, lacks uint64, parts ...Part) bool {
	if w.stands = w.only[:]; len(parts) > 1 {
		w.stands = make([]stand, len(parts))
	}
	w.by, w.since = by, time.Now()
	w.held = waitqueue.Waiter[string]{Units: parts[0].Cost, Turn: make(chan struct{}, 1), Of: w}
	watches := make([]watch, len(parts)) // made without the lock: a store may call wake with its own lock
	order.Lock()
	defer order.Unlock()
	for i := 0; i < len(parts); i++ {
		if p := parts[i]; p.Lines.byPlace[p.At] == nil && !watches[i].made {
			order.Unlock()
			watches[i] = p.Lines.watch(p.At)
			order.Lock()
			i = -1 // other lines may have gone meanwhile
		}
	}
	for i, p := range parts {
		if lacks>>uint(i)&1 != 0 && p.Lines.full(p.At) {
			for _, one := range watches {
				one.end()
			}
			return false
		}
	}
	order.n++
	w.arrived = order.n
	for i, p := range parts {
		s := &w.stands[i]
		*s = stand{waiter: w, line: p.Lines.lineOf(p.At, watches[i]), cost: p.Cost, at: -1}
		s.line.number(s)
		if lacks>>uint(i)&1 == 0 {
			s.moves(true)
		} else if s.line.enter(s); s.line.here.first() != w && !s.line.stuck {
			s.line.note(w)
		}
	}
	return true
}

// Age returns how long ago the waiter joined.
func (w *Waiter) Age() time.Duration { return time.Since(w.since) }

// Free returns how long ago a request under several limits could have passed at the earliest: not before
// it joined, and not before units came back that it, or a waiter ahead of it, needs. Since when the limits
// have room is worked out from their present states.
func (w *Waiter) Free() time.Duration {
	order.Lock()
	defer order.Unlock()
	now, free := time.Now(), w.since
	for i := range w.stands {
		ln := w.stands[i].line
		d := &ln.denied
		since, cost := ln.made.After(d.asked), w.stands[i].cost
		switch early := now.Before(d.until) && w.by.Refill(i, d.until.Sub(now)) >= d.cost-cost; {
		case early && !since: // given back by another process
			return 0
		case early || !since && d.arrived <= w.arrived:
			free = later(free, ln.made)
		case since && cost >= d.cost && !ln.made.Before(d.until): // more than time alone gives
			free = later(free, d.until)
		}
	}
	return now.Sub(free)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wake makes the waiter look again; w may be nil.
func (w *Waiter) wake() {
	if w != nil {
		w.held.Wake()
	}
}

// ln returns the line of a waiter with one part.
func (w *Waiter) ln() *line { return w.stands[0].line }

func (w *Waiter) partOf(s *stand) int {
	for i := range w.stands {
		if &w.stands[i] == s {
			return i
		}
	}
	return -1
}

type step uint8

const (
	stepPause  step = iota // sleep until it is woken, or until due if that is set
	stepTry                // ask the store for all parts; their lines are busy for it
	stepSurvey             // ask only about the lines in which it is first; these are busy for it
	stepLook               // ask whether the held waiters could start earlier; the line is busy for it
	stepOver               // ask whether it can still pass: a limit has been lowered
	stepSeat               // learn that it must wait
	stepSeated             // return: it knows that it must wait, and its caller asked no more
	stepStart              // return: it has left its lines, and starts
)

// next returns what w does next. For stepPause, due is when the pause ends at the latest, or zero for
// never. next returns stepSeated only if seat is true.
func (w *Waiter) next(seat bool) (s step, due time.Time) {
	order.Lock()
	defer order.Unlock()
	now := time.Now()
	switch {
	case w.out:
		return stepStart, due
	case w.admitted:
		return w.ln().nextHeld(w, now, seat)
	case seat && w.seated:
		return stepSeated, due
	case slices.ContainsFunc(w.stands, func(s stand) bool { return s.over }):
		return stepOver, due
	case w.aside:
		return stepPause, due
	}
	behind, stuck, asks := w.stance(now)
	if asks && !behind && w.fallIn() {
		behind, stuck, asks = w.stance(now)
	}
	switch {
	case behind && stuck && !w.looked:
		w.looked = true
		return stepSeat, due
	case !asks && behind && !w.first():
		return stepPause, due
	case !asks:
		return stepPause, w.due
	case w.putOff():
		return stepPause, due
	}
	for i := range w.stands {
		if st := &w.stands[i]; !behind || st.first() {
			st.asked, st.line.busy, st.line.again = true, true, false
		}
	}
	if behind {
		return stepSurvey, w.due
	}
	return stepTry, w.due
}

// fallIn puts w back behind those who came before it and have no room where it had some, and reports
// whether there are any. w must be about to ask the store, since it forgets what the store said before.
func (w *Waiter) fallIn() (behind bool) {
	for i := range w.stands {
		s := &w.stands[i]
		if first := s.line.here.first(); s.room && first != nil && first.arrived < w.arrived {
			s.moves(false)
			behind = true
		}
	}
	return behind
}

// first reports whether w is the first of here in one of its lines.
func (w *Waiter) first() bool {
	return slices.ContainsFunc(w.stands, func(s stand) bool { return s.first() })
}

// stance reports whether others come before w in one of its lines, whether it is known that they must
// wait, and whether w is to ask the store now.
func (w *Waiter) stance(now time.Time) (behind, stuck, asks bool) {
	ready := w.due.IsZero() || !now.Before(w.due)
	for i := range w.stands {
		switch s := &w.stands[i]; {
		case s.room:
		case s.first():
			asks = asks || !s.known || ready
		default:
			behind, stuck = true, stuck || s.line.stuck
		}
	}
	return behind, stuck, asks || !behind && ready
}

// putOff reports whether a line that w would ask about is busy. That line then wakes w once it is not.
func (w *Waiter) putOff() (busy bool) {
	for i := range w.stands {
		s := &w.stands[i]
		if s.line.busy && (s.room || s.first()) {
			if busy = true; s.room {
				s.line.put = append(s.line.put, w)
			}
		}
	}
	return busy
}

// Drive acts for w until it starts or, if seat is true, until it knows that it must wait. After an
// error, w has left its lines.
func (w *Waiter) Drive(ctx context.Context, seat bool) (started bool, err error) {
	done := false
	defer func() {
		if !done { // an error, or a store that panics: the waiters behind must not hang
			w.giveUp(ctx)
		}
	}()
	for {
		step, due := w.next(seat)
		switch step {
		case stepStart:
			done = true
			w.tidy(ctx)
			return true, nil
		case stepSeated:
			done = true
			return false, nil
		case stepTry:
			err = w.try(ctx, due)
		case stepSurvey:
			err = w.survey(ctx)
		case stepLook:
			w.ln().lookHeld(ctx)
		case stepOver:
			err = w.lookOver(ctx)
		case stepSeat:
			if err = w.by.Ahead(ctx); err == nil {
				w.sits()
			}
		case stepPause:
			err = w.pause(ctx, due)
		}
		if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
			err = errors.Join(ended, err)
		}
		if err != nil {
			return false, err
		}
	}
}

// lookOver asks the store about the parts that may need more than can ever pass. If one does, the
// Asker returns an error.
func (w *Waiter) lookOver(ctx context.Context) error {
	for i := range w.stands {
		order.Lock()
		over := w.stands[i].over
		w.stands[i].over = false
		order.Unlock()
		if !over {
			continue
		}
		if _, err := w.by.Look(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (w *Waiter) sits() {
	order.Lock()
	defer order.Unlock()
	w.seated = true
}

// pause returns when w is woken, at due (zero means never), or with the context's error.
func (w *Waiter) pause(ctx context.Context, due time.Time) error {
	var fire <-chan time.Time
	if !due.IsZero() {
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		fire = timer.C
	}
	select {
	case <-w.held.Turn:
	case <-fire:
	case <-ctx.Done():
		return over(ctx, due)
	}
	return nil
}

// over returns the context's error. It returns nil after a deadline by which w was due, since a
// request that passes at its deadline is in time.
func over(ctx context.Context, due time.Time) error {
	err := ctx.Err()
	if err != nil && !due.IsZero() && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && !time.Now().Before(due) {
		return nil
	}
	return err
}

// try asks the store for w, which is first in each line in which it has no room. The lines are busy
// for w until try returns.
func (w *Waiter) try(ctx context.Context, due time.Time) error {
	defer w.release(ctx)
	if err := over(ctx, due); err != nil {
		return err
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // due at the deadline
	}
	for i := range w.stands {
		if s := &w.stands[i]; s.asked {
			s.line.giveBack(ctx, func() {})
		}
	}
	later, to, err := w.yields(ctx)
	if err != nil {
		return err
	}
	if to != 0 && later <= 0 {
		w.standAside(ctx, to)
		return nil
	}
	asked := time.Now()
	a, err := w.by.Take(ctx, later, to)
	if err != nil {
		return err
	}
	after, denied := time.Now(), a.Lacks
	for i := range w.stands {
		if s := &w.stands[i]; !a.Passes && later <= 0 && bits.OnesCount64(denied) <= 1 && (denied == 0 || denied>>uint(i)&1 != 0) {
			s.lacked(asked, a.Again)
		}
		if bits.OnesCount64(denied) > 1 && denied>>uint(i)&1 != 0 { // once one has room, others in its line may ask
			one, err := w.by.Look(ctx, i)
			if err != nil {
				return err
			}
			if !one.Passes {
				a.Again = min(a.Again, one.Again)
				w.stands[i].lacked(asked, one.Again)
			}
		}
	}
	order.Lock()
	defer order.Unlock()
	if a.Lacks |= to; a.Passes {
		w.admit(a, after)
	} else {
		w.deny(a, after)
	}
	w.seated = !w.out
	return nil
}

// yields returns for how long w leaves its room to waiters that came before it, and a bit for each
// part at which it does; 0 and 0 if it leaves room to nobody. The earlier waiter has room there, and needs
// it when its other parts let it pass. w yields only if it would pass by itself, but not beside them,
// and until there is room for all, or they hold it back no more.
func (w *Waiter) yields(ctx context.Context) (later time.Duration, to uint64, err error) {
	var more []int64
	ends := make([]time.Time, 0, 4)
	order.Lock()
	for i := range w.stands {
		units, end := w.stands[i].line.reserved(w)
		if ends = append(ends, end); units == 0 {
			continue
		}
		if more == nil {
			more = make([]int64, len(w.stands))
		}
		to, more[i] = to|1<<uint(i), units
	}
	order.Unlock()
	if more == nil {
		return 0, 0, nil
	}
	if lacks, _, err := w.by.With(ctx, more); lacks == 0 || lacks&^to != 0 || err != nil {
		return 0, 0, err
	}
	if lacks, _, err := w.by.With(ctx, make([]int64, len(more))); lacks != 0 || err != nil {
		return 0, 0, err
	}
	lacks, later, err := w.by.With(ctx, more)
	if to &= lacks; to == 0 || err != nil { // room may have come back since
		return 0, 0, err
	}
	for rest := to; rest != 0; rest &= rest - 1 {
		later = min(later, time.Until(ends[bits.TrailingZeros64(rest)]))
	}
	if to&(to-1) != 0 { // at one of them there may soon be enough for both, and then w must not hold up others
		later = min(later, longestMoment)
	}
	return later, to, nil
}

// standAside makes w wait until the waiters to which it yields at the parts in to have asked, if their
// moment has come. If w went on asking, its lines would be busy whenever those waiters look.
func (w *Waiter) standAside(ctx context.Context, to uint64) {
	w.release(ctx)
	order.Lock()
	defer order.Unlock()
	for i := range w.stands {
		ln := w.stands[i].line
		if to>>uint(i)&1 == 0 {
			continue
		}
		if units, until := ln.reserved(w); units > 0 && !until.After(time.Now()) {
			ln.put, w.aside, w.due, w.opens = append(ln.put, w), true, time.Time{}, time.Time{}
		}
	}
}

// admit lets w pass, or gives it its place in a queue.
func (w *Waiter) admit(a Answer, after time.Time) {
	if a.Place != nil {
		w.ln().assign(w, a, after)
		return
	}
	for i := range w.stands {
		s := &w.stands[i]
		s.line.exit(s)
		s.line.fits -= min(s.cost, s.line.fits)
	}
	w.out = true
}

// deny makes w ask again when it may pass, and hold back others where it has no room.
func (w *Waiter) deny(a Answer, after time.Time) {
	pause, again := max(a.Again, 1), false
	for i := range w.stands {
		s := &w.stands[i]
		pause, again = min(pause, s.line.within()), again || s.line.again
		s.moves(a.Lacks != 0 && a.Lacks>>uint(i)&1 == 0)
		if s.known = !s.room; s.known {
			s.line.stuck = true
		}
	}
	w.due, w.opens = after.Add(pause), time.Time{}
	if a.Again != Unknown {
		w.opens = after.Add(max(a.Again, 1))
	}
	if again {
		w.due, w.opens = time.Time{}, time.Time{} // room was made meanwhile
	}
}

func (ln *line) within() time.Duration {
	if ln.poll > 0 {
		return ln.poll
	}
	return Unknown
}

// survey asks the store about the lines in which w is first, while others come before it in other
// lines. Where there is room, w moves to elsewhere, so that the next of here may ask.
func (w *Waiter) survey(ctx context.Context) error {
	defer w.release(ctx)
	pause := Unknown
	for i := range w.stands {
		s := &w.stands[i]
		if !s.asked {
			continue
		}
		asked := time.Now()
		a := Answer{Passes: s.fits()} // as one before it has heard
		if !a.Passes {
			var err error
			if a, err = w.by.Look(ctx, i); err != nil {
				return err
			}
		}
		if !a.Passes {
			s.lacked(asked, a.Again)
		}
		order.Lock()
		if a.Passes {
			s.line.fits = max(s.line.fits, s.cost)
		}
		if s.moves(a.Passes); !a.Passes {
			s.known, s.line.stuck, pause = true, true, min(pause, max(a.Again, 1), s.line.within())
		}
		order.Unlock()
	}
	order.Lock()
	defer order.Unlock()
	w.due, w.opens = time.Now().Add(pause), time.Time{}
	if slices.ContainsFunc(w.stands, func(s stand) bool { return s.asked && s.line.again }) {
		w.due = time.Time{} // room was made meanwhile
	}
	return nil
}

// giveUp takes w out of its lines. If w has a place in a queue, the place is given back by giveUp, or
// by the goroutine that is calling the store for the line.
func (w *Waiter) giveUp(ctx context.Context) {
	order.Lock()
	held := w.admitted && !w.out
	if held {
		w.ln().leaveQueue(w)
	} else if !w.out {
		for i := range w.stands {
			s := &w.stands[i]
			s.line.exit(s)
			s.line.stir()
			s.line.drop()
		}
	}
	w.out = true
	order.Unlock()
	if held {
		w.tidy(ctx)
	}
}

// release ends the calls for w: its lines are no longer busy.
func (w *Waiter) release(ctx context.Context) {
	for i := range w.stands {
		if s := &w.stands[i]; s.asked {
			order.Lock()
			s.asked = false
			order.Unlock()
			s.line.release(ctx)
		}
	}
}

// A Count is what stands before a request at one place.
type Count struct {
	// Cost is that of the waiters without room who do not ask the store: none of it has been
	// charged.
	Cost uint128.Int
	// Quiet says that nobody asks: one that does may have passed, and what a held waiter has given
	// up may not be back yet.
	Quiet bool

	epoch uint64
}

// Since reports whether nothing that the store has charged for held waiters has changed since an
// earlier count.
func (c Count) Since(earlier Count) bool { return earlier.Quiet && c.epoch == earlier.epoch }

// Before counts those before w at the place of a part.
func (w *Waiter) Before(part int) Count {
	order.Lock()
	defer order.Unlock()
	s := &w.stands[part]
	return s.line.before(s.number)
}

// Before returns [Count].Cost at the place of each part of a request that would join now, with the
// units that the first of elsewhere is to take soon. What that one holds back for a time only is not counted.
func Before(parts []Part) []uint128.Int {
	costs := make([]uint128.Int, len(parts))
	order.Lock()
	defer order.Unlock()
	for i, p := range parts {
		ln := p.Lines.byPlace[p.At]
		if ln == nil {
			continue
		}
		costs[i] = ln.before(len(ln.costs) + 1).Cost
		if units, until := ln.reserved(nil); units > 0 && !ln.elsewhere[0].asked && until.Equal(ln.elsewhere[0].waiter.opens) {
			costs[i] = costs[i].Add(uint128.From(uint64(units)))
		}
	}
	return costs
}

// before counts those of here with a number below n: none while the first of them has come before the last
// change of the limits, since it may ask by others than w.
func (ln *line) before(n int) Count {
	c := Count{Quiet: !ln.busy, epoch: ln.epoch}
	if len(ln.here) > 0 && !ln.here[0].waiter.since.After(ln.lines.changed) {
		return c
	}
	c.Cost = ln.costs.below(n)
	if len(ln.here) > 0 && ln.here[0].asked && ln.here[0].number < n {
		c.Cost = c.Cost.Sub(uint128.From(uint64(ln.here[0].cost)))
	}
	return c
}

// Spare returns when w would start if it got a place in a queue: it may start in what those held before it
// leave of theirs. w must have one part.
func (w *Waiter) Spare(p waitqueue.Place[string]) time.Time {
	order.Lock()
	defer order.Unlock()
	return w.ln().held.Spare(p)
}

// Due returns when w starts, or asks the store next, and whether that is known. w must have one part.
func (w *Waiter) Due() (time.Time, bool) {
	order.Lock()
	defer order.Unlock()
	switch {
	case w.admitted && !w.out:
		return w.ln().held.StartOf(&w.held), true
	case w == w.ln().here.first():
		return w.due, !w.due.IsZero()
	}
	return time.Time{}, false
}
