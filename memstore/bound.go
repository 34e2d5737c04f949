package memstore

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/stint-dev/stint"
)

// bound implements [stint.Bound].
type bound struct {
	store  *Store
	name   *name
	view   atomic.Pointer[view]
	pinned *atomic.Pointer[view] // the same, for unpin
}

// A view is what a bound decides by. It does not change.
type view struct {
	only   *limit // where there is one, without a ban: what most requests need, at one load
	limits []*limit
	whole  []*limit // those that were bound together, of which limits are one or all
	bans   bool     // one of limits has a ban: the fast paths leave it to others
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
	return s.bound(s.names[name], newView(whole, whole)), nil
}

// bound returns what decides by a view. The store's lock is held.
func (s *Store) bound(n *name, v *view) *bound {
	b := &bound{store: s, name: n, pinned: new(atomic.Pointer[view])}
	b.show(v)
	runtime.AddCleanup(b, unpin, b.pinned)
	if len(n.bounds) == cap(n.bounds) {
		n.bounds = slices.DeleteFunc(n.bounds, func(p weak.Pointer[bound]) bool { return p.Value() == nil })
	}
	n.bounds = append(n.bounds, weak.Make(b))
	return b
}

// show makes a bound decide by a view, and hold its limits until it is garbage.
func (b *bound) show(v *view) {
	for _, l := range v.limits {
		l.holders.Add(1)
	}
	b.view.Store(v)
	if old := b.pinned.Swap(v); old != nil {
		letGo(old)
	}
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

// Apart returns the i-th limit by itself: what is charged to it is charged to
// no other of the name.
func (b *bound) Apart(i int) stint.Bound {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	v := b.view.Load()
	return b.store.bound(b.name, newView(v.whole, v.limits[i:i+1]))
}

// Change gives all that hold this bound other limits, from the next decision on,
// and wakes those that wait. The error says which cannot be held; nothing is
// changed then. See [stint.Limiter.SetLimits].
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
// in every Bound of a name that holds them. What keys have used is kept as
// docs/SEMANTICS.md says of changes. known reports whether any Bound may still hold
// those limits.
func (s *Store) Exchange(name string, from, to []stint.Limit) (known bool, err error) {
	if err := stint.CheckBind(name, to); err != nil {
		return true, err
	}
	meters, err := s.meters(to)
	if err != nil {
		return true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[name]
	if s.closed.Load() || n == nil {
		return false, nil
	}
	var whole []*limit
	for _, p := range n.bounds {
		b := p.Value()
		if b == nil || !slices.Equal(given(b.view.Load().whole), from) {
			continue
		}
		if known = true; whole == nil {
			whole = s.limits(name, to, meters)
		}
		v := b.view.Load()
		limits := whole
		if i := slices.Index(v.whole, v.limits[0]); len(v.limits) < len(v.whole) {
			limits = whole[i : i+1]
		}
		b.show(newView(whole, limits))
	}
	if known {
		s.watchers.everywhere()
	}
	return known, nil
}
