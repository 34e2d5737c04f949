package memstore

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"weak"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// A name is what limits are bound under. What a key has used under it is one
// state: every form of its limits that has decided about the key counts what the
// key does, each by its own rule; see family.
type name struct {
	text     string
	forms    []*form                             // guarded by the store's lock, as are the next two
	numbers  uint32                              // of forms, ever
	bounds   []weak.Pointer[bound]               // those that were bound, for Exchange
	families atomic.Pointer[[mostShards]*family] // nil while there is one form; each under its shard's lock
}

// A form is limits that were bound together: one way of a name to decide.
type form struct {
	name    *name
	number  uint32 // among the forms of its name
	key     string // what it is known by
	limits  []*limit
	all     view
	holders atomic.Int32 // see pin
	since   int64        // when it was first seen without any; 0 while it is held
	looked  int64        // when release last looked for idle keys
	stays   int64        // until when it is not released, even if it is not held
}

// A limit is one of a form, in every shard.
type limit struct {
	form   *form
	id     string
	name   string      // what it is bound under, and its ID
	salt   uint64      // makes one key under two limits two
	given  stint.Limit // as it was bound
	meter  *meter.Meter
	tables [mostShards]*table // each under its shard's lock; nil where no key is
	live   atomic.Int32       // how many tables there are
}

// A view is what a bound decides by: the limits of a form, or one of them by
// itself.
type view struct {
	only   *limit // where there is one: what most requests need, at one load
	form   *form
	limits []*limit
	apart  bool // one by itself: it charges other forms of that limit alone
}

func viewOf(f *form, limits []*limit) view {
	v := view{form: f, limits: limits}
	if len(limits) == 1 {
		v.only = limits[0]
	}
	return v
}

// apart is between a name and an ID, neither of which has control characters.
const apart = "\x00"

// formKey returns the key that identifies a form among the forms of all names.
func formKey(text string, limits []stint.Limit) string {
	var b strings.Builder
	b.WriteString(text)
	for _, l := range limits {
		b.WriteString(apart)
		b.WriteString(l.ID())
		b.WriteString(apart)
		b.WriteString(l.String())
	}
	return b.String()
}

// form returns the form of a name that has these limits, and makes it if there
// is none. The store's lock is held.
func (s *Store) form(text string, limits []stint.Limit, meters []*meter.Meter) *form {
	key := formKey(text, limits)
	if f := s.forms[key]; f != nil {
		return f
	}
	n := s.names[text]
	if n == nil {
		n = &name{text: text}
		s.names[text] = n
	}
	n.numbers++
	f := &form{name: n, number: n.numbers, key: key, limits: make([]*limit, len(meters))}
	for i, m := range meters {
		id := limits[i].ID()
		full := text + apart + id
		f.limits[i] = &limit{form: f, id: id, name: full, salt: s.seed.hash(full), given: limits[i], meter: m}
	}
	f.all = viewOf(f, f.limits)
	n.forms = append(n.forms, f)
	s.forms[key] = f
	s.list = append(s.list, f)
	if len(n.forms) == 2 {
		s.becomeSeveral(n)
	}
	return f
}

// meters makes limits ready to decide, or says why they cannot be held.
func (s *Store) meters(limits []stint.Limit) ([]*meter.Meter, error) {
	meters := make([]*meter.Meter, len(limits))
	for i, l := range limits {
		var err error
		if meters[i], err = l.Meter(); err != nil {
			return nil, err
		}
		if l.Algorithm() == meter.SlidingLog && l.Count() > s.maxLog {
			return nil, fmt.Errorf("stint: limit %q: a log of %d is more than the %d that this store keeps (Options.MaxLog): sliding_buckets needs far less",
				l.Name(), l.Count(), s.maxLog)
		}
	}
	return meters, nil
}

// Bind implements [stint.Store]. The Bound holds its limits: limits that no Bound
// or reservation holds, and under which no key counts, are released.
func (s *Store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	if s.closed.Load() {
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
	s.releaseSome(2)
	return s.bound(&s.form(name, limits, meters).all), nil
}

// bound returns what decides by a view. The store's lock is held.
func (s *Store) bound(v *view) *bound {
	b := &bound{store: s}
	b.view.Store(v)
	s.pin(b)
	n := v.form.name
	if len(n.bounds) == cap(n.bounds) {
		n.bounds = slices.DeleteFunc(n.bounds, func(p weak.Pointer[bound]) bool { return p.Value() == nil })
	}
	n.bounds = append(n.bounds, weak.Make(b))
	return b
}

// Apart returns the i-th limit by itself: what is charged to it is charged to
// that limit alone, in all its forms, and to no other of the name.
func (b *bound) Apart(i int) stint.Bound {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	v := b.view.Load()
	if len(v.limits) == 1 && len(v.form.limits) == 1 {
		return b
	}
	one := viewOf(v.form, v.limits[i:i+1])
	one.apart = true
	return s.bound(&one)
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
	s.become(b, s.form(n, limits, meters))
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

// Exchange replaces the limits from by the limits to in every Bound of a name that
// holds them: as many, in the same order, each with the ID of the one it replaces.
// What keys have used is kept as docs/SEMANTICS.md says of changes. known reports
// whether any Bound may still hold those limits.
func (s *Store) Exchange(name string, from, to []stint.Limit) (known bool, err error) {
	if err := stint.CheckBind(name, to); err != nil {
		return true, err
	}
	meters, err := s.meters(to)
	if err != nil {
		return true, err
	}
	if _, err := s.meters(from); err != nil {
		return true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.forms[formKey(name, from)]
	if s.closed.Load() || old == nil {
		return false, nil
	}
	next := s.form(name, to, meters)
	if next == old {
		return true, nil
	}
	for _, p := range old.name.bounds {
		if b := p.Value(); b != nil && b.view.Load().form == old {
			s.become(b, next)
		}
	}
	s.watchers.everywhere()
	return true, nil
}

// become makes a bound decide by another form.
func (s *Store) become(b *bound, f *form) {
	v := b.view.Load()
	next := &f.all
	if v.apart {
		i := slices.Index(v.form.limits, v.limits[0])
		one := viewOf(f, f.limits[i:i+1])
		one.apart, next = true, &one
	}
	v.form.stays = s.clock.now() + linger
	f.holders.Add(1)
	b.pinned.Swap(f).holders.Add(-1)
	b.view.Store(next)
}

// pin makes b hold its form until b is garbage.
func (s *Store) pin(b *bound) {
	f := b.view.Load().form
	f.holders.Add(1)
	b.pinned = new(atomic.Pointer[form])
	b.pinned.Store(f)
	runtime.AddCleanup(b, unpin, b.pinned)
}

func unpin(pinned *atomic.Pointer[form]) { pinned.Load().holders.Add(-1) }
