package memstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// bound implements [stint.Bound].
type bound struct {
	store  *Store
	name   *name
	as     string // see BindAs
	view   atomic.Pointer[view]
	pinned *atomic.Pointer[view] // the view whose limits it holds; outlives b, for unpin
	divert atomic.Pointer[stint.Bound]
	turn   int // how often it was listed; under the store's lock
}

// A listed is a bound in the list of the first limit that it holds. It is stale if the bound is
// garbage, or was listed again since.
type listed struct {
	bound weak.Pointer[bound]
	turn  int
}

// current returns the bound, or nil if the entry is stale. The store's lock is held.
func (p listed) current() *bound {
	if b := p.bound.Value(); b != nil && b.turn == p.turn {
		return b
	}
	return nil
}

// A view is what a bound decides by. It does not change.
type view struct {
	only   *limit // the only limit, if it has no ban: the fast path needs one load
	limits []*limit
	whole  []*limit // all limits that were bound together: limits is all of these, or one
	bans   bool     // a limit has a ban, so the fast paths do not apply

	diverted stint.Bound // decides in place of the view, if it is not nil; then only is nil
}

func newView(whole, limits []*limit) *view {
	v := &view{whole: whole, limits: limits}
	v.bans = slices.ContainsFunc(limits, func(l *limit) bool { return l.ban != nil })
	if len(limits) == 1 && !v.bans {
		v.only = limits[0]
	}
	return v
}

var errZero = errors.New("memstore: a Store that is not from New: memstore.New makes one")

// Bind implements [stint.Store]. The Bound holds its limits: limits that no Bound
// or reservation holds, and under which no key counts, are released.
func (s *Store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	return s.BindAs("", name, limits...)
}

// BindAs is Bind, and names the Bound for [Store.Exchange]: Bounds that hold the same limits now may
// hold different ones later.
func (s *Store) BindAs(as, name string, limits ...stint.Limit) (stint.Bound, error) {
	switch {
	case s.shards == nil:
		return nil, errZero
	case s.closed.Load():
		return nil, stint.ErrClosed
	}
	if err := stint.CheckBind(name, limits); err != nil {
		return nil, err
	}
	meters, err := s.meters(limits)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	s.releaseSome(2, false)
	whole := s.limits(name, limits, meters)
	return s.bound(s.names[name], as, newView(whole, whole)), nil
}

// mostGiven is how many limits that clients choose a name may have, of two kilobytes each.
// One key may take a slot under each of them, all in one shard: they fill at most one part
// in givenParts of it.
const (
	mostGiven  = 4096
	givenParts = 4
)

// RoomFor returns an error that matches [stint.ErrFull] if a name has as many limits as it
// may have, and l is none of them. It is for limits that clients choose: a limit takes memory
// while it is held or keys count under it, and each key takes a slot under each limit.
func (s *Store) RoomFor(name string, l stint.Limit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.accounts[name+apart+l.ID()]; a != nil && a.find(l) != nil {
		return nil
	}
	s.releaseSome(2, false) // as Bind does: limits that count no more make room
	known := 0
	if n := s.names[name]; n != nil {
		known = n.known
	}
	if known >= max(min(mostGiven, s.shards[0].maxKeys/givenParts), 1) {
		return fmt.Errorf("%w: %d different limits of %s still count: no other may be added", stint.ErrFull, known, name)
	}
	return nil
}

// bound returns a bound that decides by a view. The store's lock is held.
func (s *Store) bound(n *name, as string, v *view) *bound {
	b := &bound{store: s, name: n, as: as, pinned: new(atomic.Pointer[view])}
	b.show(v)
	runtime.AddCleanup(b, unpin, b.pinned)
	return b
}

// show makes a bound decide by a view, and hold the view's limits until the bound is garbage. The
// store's lock is held.
func (b *bound) show(v *view) {
	for _, l := range v.limits {
		l.holders.Add(1)
	}
	b.view.Store(v)
	b.redirect()
	old := b.pinned.Swap(v)
	if old == nil || old.limits[0] != v.limits[0] {
		b.turn++
		v.limits[0].list(b)
	}
	if old != nil {
		letGo(old)
	}
}

// list notes a bound that holds l first. The room that it makes keeps its price constant.
func (l *limit) list(b *bound) {
	if len(l.bounds) == cap(l.bounds) {
		l.bounds = slices.DeleteFunc(l.bounds, func(p listed) bool { return p.current() == nil })
		l.bounds = slices.Grow(l.bounds, len(l.bounds)+1)
	}
	l.bounds = append(l.bounds, listed{weak.Make(b), b.turn})
}

// Divert makes Allow and Decide ask another Bound, which asks the store by [Store.Decide];
// nil ends that. A [stint.Limiter] diverts its Bound while callers wait, so that nobody
// overtakes them. Divert takes no lock.
func (b *bound) Divert(to stint.Bound) {
	if to == nil {
		b.divert.Store(nil)
	} else {
		b.divert.Store(&to)
	}
	b.redirect()
}

// redirect copies divert into the view, so that decisions load one pointer.
func (b *bound) redirect() {
	for {
		v, to := b.view.Load(), stint.Bound(nil)
		if p := b.divert.Load(); p != nil {
			to = *p
		}
		if v.diverted == to {
			return
		}
		next := newView(v.whole, v.limits)
		if next.diverted = to; to != nil {
			next.only = nil
		}
		if b.view.CompareAndSwap(v, next) {
			return
		}
	}
}

// elsewhere decides what is not a take of one limit, or asks who the view is diverted to.
func (b *bound) elsewhere(ctx context.Context, op meter.Op, key string, cost int64) (stint.Decision, error) {
	if to := b.view.Load().diverted; to != nil {
		return to.Decide(ctx, op, key, cost)
	}
	return b.several(op, key, cost)
}

func unpin(pinned *atomic.Pointer[view]) { letGo(pinned.Load()) }

func letGo(v *view) {
	for _, l := range v.limits {
		l.holders.Add(-1)
	}
}

// Limits implements [stint.Bound].
func (b *bound) Limits() []stint.Limit { return given(b.view.Load().limits) }

func given(limits []*limit) []stint.Limit {
	out := make([]stint.Limit, len(limits))
	for i, l := range limits {
		out[i] = l.given
	}
	return out
}

// Name implements [stint.Bound].
func (b *bound) Name() string { return b.name.text }

// Apart returns a Bound of the i-th limit alone: a charge to it charges no other
// limit of the name.
func (b *bound) Apart(i int) stint.Bound {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	v := b.view.Load()
	return b.store.bound(b.name, b.as, newView(v.whole, v.limits[i:i+1]))
}

// Change replaces the limits from the next decision on, for everyone who uses this
// bound, and wakes the callers that wait. If one of the limits cannot be held, the
// error names it, and nothing changes. See [stint.Limiter.SetLimits].
func (b *bound) Change(limits ...stint.Limit) error {
	s, n := b.store, b.Name()
	if err := stint.CheckBind(n, limits); err != nil {
		return err
	}
	meters, err := s.meters(limits)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return stint.ErrClosed
	}
	whole := s.limits(n, limits, meters)
	b.show(newView(whole, whole))
	s.watchers.everywhere()
	return nil
}

// Unchanged reports whether limits are what Limits returns, without an allocation.
func (b *bound) Unchanged(limits []stint.Limit) bool {
	all := b.view.Load().limits
	if len(all) != len(limits) {
		return false
	}
	for i, l := range all {
		if l.given != limits[i] { // in place: a copy would cost as much
			return false
		}
	}
	return true
}

// Exchange replaces the limits from by the limits to, as many and in the same order,
// in every Bound of a name that holds them, and that [Store.BindAs] named as. What keys have used is
// kept as docs/SEMANTICS.md says of changes. known is false if no such Bound held the limits from.
// Its price is that of the Bounds that hold one of them.
func (s *Store) Exchange(as, name string, from, to []stint.Limit) (known bool, err error) {
	if err := stint.CheckBind(name, to); err != nil {
		return true, err
	}
	meters, err := s.meters(to)
	if err != nil {
		return true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false, nil
	}
	all := s.holding(as, name, from)
	if len(all) == 0 || slices.Equal(from, to) {
		return len(all) > 0, nil
	}
	whole := s.limits(name, to, meters)
	for _, b := range all {
		v, limits := b.view.Load(), whole
		if i := slices.Index(v.whole, v.limits[0]); len(v.limits) < len(v.whole) {
			limits = whole[i : i+1]
		}
		b.show(newView(whole, limits))
	}
	s.watchers.everywhere()
	return true, nil
}

// holding returns the bounds, named as, of a name whose limits, or one of them, are these. The store's
// lock is held.
func (s *Store) holding(as, name string, limits []stint.Limit) (all []*bound) {
	same := func(l *limit, given stint.Limit) bool { return l.given == given }
	for _, given := range limits {
		a := s.accounts[name+apart+given.ID()]
		if a == nil {
			continue
		}
		l := a.find(given)
		if l == nil {
			continue
		}
		for _, p := range l.bounds {
			if b := p.current(); b != nil && b.as == as && slices.EqualFunc(b.view.Load().whole, limits, same) {
				all = append(all, b)
			}
		}
	}
	return all
}
