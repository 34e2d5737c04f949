// Package memstore keeps the state of limits in this process: exact, bounded
// and without work for the garbage collector.
//
// Most programs call [New] once, with the zero Options, and make a
// [stint.Limiter] for each thing they limit. [Single] is the limiter for
// callers that have no keys.
//
// Guarantees: a decision is what docs/SEMANTICS.md says, whatever other
// goroutines do; time never goes back; an established key is forgotten only
// once it is as if never seen; there are never more keys than
// Options.MaxKeys, and beyond that newcomers share overflow cells.
//
// Price: one clock read, one hash, one lock of a shard and about one cache
// miss a decision, no allocation, and for a bucket whose period divides evenly
// about 21 bytes a key. Keys are known by a hash of 64 bits that is seeded for
// each store: of five million keys, two share a state with a probability of
// less than one in a million.
//
// A Store may be used from many goroutines at once and starts none.
package memstore

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
)

// Options are the bounds of a store. The zero value is good for most.
type Options struct {
	// MaxKeys is the most keys that have a place of their own, counted once
	// for each limit they are under. It is divided evenly over the shards.
	// The default value is 1,048,576.
	MaxKeys int
	// MaxBytes is the most that logs and parts may take, in bytes; beyond it
	// new keys of such limits share overflow cells, and logs merge their newest
	// entries, which makes them stricter, never laxer. The default value is
	// 1 GiB.
	MaxBytes int64
	// MaxLog is the largest count of a sliding_log that is accepted. The
	// default value is 1,000,000.
	MaxLog int64
	// MaxReservations is the most reservations that may be open. The default
	// value is 100,000.
	MaxReservations int
	// Now, if set, is the clock: nanoseconds since the Unix epoch. It is for
	// simulations and tests. The default is a clock that never steps.
	Now func() int64
}

const (
	mostShards   = 64
	keysPerShard = 512  // fewer would make a small bound uneven
	cellsInAll   = 1024 // overflow cells of one limit
)

// Store implements [stint.Store] in memory.
type Store struct {
	clock  clock
	seed   seed
	shift  uint8 // a hash belongs to shard hash >> shift
	cells  int   // overflow cells of a limit in a shard
	shards []shard
	closed atomic.Bool

	maxLog       int64
	mu           sync.Mutex // guards bind and pending; before any shard's lock
	byName       map[string]*limit
	limits       atomic.Pointer[[]*limit]
	pending      map[string]*savedLimit // of a snapshot, until they are bound
	reservations reservations
}

var _ stint.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxKeys <= 0 {
		o.MaxKeys = 1 << 20
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.MaxLog <= 0 {
		o.MaxLog = 1_000_000
	}
	if o.MaxReservations <= 0 {
		o.MaxReservations = 100_000
	}
	shards := mostShards
	for shards > 1 && o.MaxKeys/shards < keysPerShard {
		shards /= 2
	}
	s := &Store{
		seed:   newSeed(),
		shift:  uint8(64 - bits.Len(uint(shards-1))),
		cells:  cellsInAll / shards,
		shards: make([]shard, shards),
		maxLog: o.MaxLog,
		byName: make(map[string]*limit),
	}
	s.clock.init(o.Now)
	s.limits.Store(new([]*limit))
	s.reservations.init(o.MaxReservations)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.index = i
		sh.maxKeys = o.MaxKeys / shards
		sh.maxBytes = o.MaxBytes / int64(shards)
	}
	return s
}

// A limit is what one name stands for, in every shard.
type limit struct {
	name   string
	salt   uint64 // makes one key under two limits two
	tables []table
	meter  atomic.Pointer[stint.Meter] // as it stands now
}

func (s *Store) all() []*limit { return *s.limits.Load() }

// shard returns the shard of a hash.
func (s *Store) shard(h uint64) uint64 { return h >> s.shift }

// at returns the time that a table decides at: by the time of day, or by the
// clock that never steps.
func (s *Store) at(t *table, now int64) int64 {
	if t.aligned {
		return s.clock.aligned(now)
	}
	return now
}

// Bind implements [stint.Store].
func (s *Store) Bind(limits ...stint.Limit) (stint.Bound, error) {
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	if len(limits) == 0 || len(limits) > stint.MaxLayers {
		return nil, fmt.Errorf("%w: %d limits for one key: from 1 to %d", stint.ErrLayers, len(limits), stint.MaxLayers)
	}
	meters := make([]*stint.Meter, len(limits))
	names := make(map[string]bool)
	for i, l := range limits {
		var err error
		if meters[i], err = stint.NewMeter(l); err != nil {
			return nil, err
		}
		if l.Kind() == stint.SlidingLog && l.Count() > s.maxLog {
			return nil, fmt.Errorf("stint: limit %q: a log of %d is more than the %d that this store keeps (Options.MaxLog): sliding_buckets needs far less",
				l.Name(), l.Count(), s.maxLog)
		}
		if names[l.Name()] {
			return nil, fmt.Errorf("%w: limit %q twice for one key", stint.ErrLayers, l.Name())
		}
		names[l.Name()] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &bound{store: s, limits: make([]*limit, len(limits))}
	for i, m := range meters {
		b.limits[i] = s.bind(m)
	}
	return b, nil
}

// bind makes or changes the limit of a name.
func (s *Store) bind(m *stint.Meter) *limit {
	name := m.Limit().Name()
	l := s.byName[name]
	if l == nil {
		l = &limit{name: name, tables: make([]table, len(s.shards))}
		l.salt = s.seed.hash(name)
		l.meter.Store(m)
		for i := range l.tables {
			l.tables[i] = newTable(m)
		}
		s.byName[name] = l
		s.adoptSaved(l)
		list := append(append([]*limit(nil), s.all()...), l)
		s.limits.Store(&list)
		return l
	}
	if l.meter.Load().Limit() != m.Limit() {
		for i := range s.shards {
			s.change(&s.shards[i], l, m)
		}
		l.meter.Store(m)
	}
	return l
}

// change carries the keys of a limit in one shard over to its new form.
func (s *Store) change(sh *shard, l *limit, m *stint.Meter) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	old, now := &l.tables[sh.index], sh.tick(s.clock.now())
	next := newTable(m)
	at := s.at(&next, now)
	for i := range old.segments {
		for h, slot := range old.slots(old.segments[i]) {
			sh.carry(&next, next.insert(sh, h, at), old, slot, at)
			old.forget(sh, slot)
		}
	}
	for i := 0; i < len(old.cells); i += old.words() {
		if old.indirect && old.cells[i] == 0 {
			continue
		}
		if next.cells == nil {
			next.cells = make([]uint64, s.cells*next.words())
		}
		cell := i / old.words() * next.words()
		sh.carry(&next, next.cells[cell:cell+next.words()], old, old.cells[i:i+old.words()], at)
	}
	sh.dropCells(old)
	*old = next
	sh.moves++
}

// carry writes into a slot of the next table what a slot of the old one keeps.
func (sh *shard) carry(next *table, to []uint64, old *table, from []uint64, now int64) {
	state := old.state(sh, from)
	words := next.meter.Words()
	if next.log && old.log {
		words = max(words, len(state))
	}
	if next.indirect {
		to[0], _ = sh.slab.alloc(next.block(words))
	}
	next.meter.Adopt(next.state(sh, to), state, old.meter, now)
}

// Close implements [stint.Store]: it lets go of all keys. It has nothing to
// wait for, since a store starts no goroutine.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return stint.ErrClosed
	}
	s.reservations.init(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, l := range s.all() {
			l.tables[i] = newTable(l.meter.Load())
		}
		sh.slab, sh.keys = slab{}, 0
		sh.moves++
		sh.mu.Unlock()
	}
	return nil
}

// Stats is what a store holds and has done.
type Stats struct {
	// Keys is how many keys have a place, counted once for each limit; MaxKeys
	// is the most there can be.
	Keys, MaxKeys int
	// Bytes is what tables, logs and parts take.
	Bytes int64
	// Evicted is how many keys were forgotten because they had become as if
	// never seen.
	Evicted uint64
	// Overflowed is how many decisions were made on a shared cell, because the
	// store was full. While it grows, new keys are not decided exactly.
	Overflowed uint64
	// Merged is how many charges had to be merged into older entries of a log
	// for lack of room.
	Merged uint64
	// Reservations is how many are open, or settled and still remembered.
	Reservations int
	// Limits is how many limits are bound.
	Limits int
}

// Stats returns the sums over all shards, each taken at its own moment.
func (s *Store) Stats() Stats {
	st := Stats{Limits: len(s.all()), Reservations: s.reservations.len()}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		st.Keys += sh.keys
		st.MaxKeys += sh.maxKeys
		st.Bytes += sh.slab.bytes
		for _, l := range s.all() {
			st.Bytes += l.tables[i].bytes()
		}
		st.Evicted += sh.evicted
		st.Overflowed += sh.overflowed
		st.Merged += sh.merged
		sh.mu.Unlock()
	}
	return st
}

var errTTL = errors.New("stint: a reservation needs a time to live above zero")
