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
	// MaxBytes is about the most that logs and parts may take, in bytes. Beyond
	// it, when nothing may be forgotten, new keys of such limits share overflow
	// cells, and logs merge their newest entries, which makes them stricter,
	// never laxer. The default value is 1 GiB.
	MaxBytes int64
	// MaxLog is the largest count of a sliding_log that is accepted. The
	// default value is 1,000,000.
	MaxLog int64
	// MaxReservations is the most reservations that may be open, neither settled
	// nor expired. As many that were settled last are remembered until they
	// expire, to give the same answer when settled again. The default value is
	// 100,000.
	MaxReservations int
	// Now, if set, is the clock: nanoseconds since the Unix epoch. It is for
	// simulations and tests. The default is a clock that never steps.
	Now func() int64
}

const (
	mostShards   = 64
	keysPerShard = 512 // fewer would make a small bound uneven
	cellBits     = 10  // of a hash: 1,024 overflow cells of one limit
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
	mu           sync.Mutex // guards what follows; before any shard's lock
	byName       map[string]*limit
	limits       []*limit               // of byName
	turn         int                    // of limits: whose release is looked at next
	pending      map[string]*savedLimit // of a snapshot, until they are bound
	reservations reservations
	watchers     watchers

	fullReservations atomic.Uint64
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
		cells:  1 << cellBits / shards,
		shards: make([]shard, shards),
		maxLog: o.MaxLog,
		byName: make(map[string]*limit),
	}
	s.clock.init(o.Now)
	s.reservations.init(o.MaxReservations)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.index = i
		sh.maxKeys = o.MaxKeys / shards
		sh.maxBytes = o.MaxBytes / int64(shards)
	}
	return s
}

// A limit is one that is known under a name, in every shard.
type limit struct {
	name    string                      // what it is bound under, and its ID
	salt    uint64                      // makes one key under two limits two
	meter   atomic.Pointer[stint.Meter] // as it stands now
	tables  [mostShards]*table          // each under its shard's lock; nil where no key is
	live    atomic.Int32                // how many tables there are
	holders atomic.Int32                // see hold
	looked  int64                       // when release last looked for its idle keys
}

// apart is between a name and an ID, neither of which has control characters.
const apart = "\x00"

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

// Bind implements [stint.Store]. What it returns holds its limits: one that
// nobody holds, and under which no key counts, is released.
func (s *Store) Bind(name string, limits ...stint.Limit) (stint.Bound, error) {
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	if err := stint.CheckBind(name, limits); err != nil {
		return nil, err
	}
	meters := make([]*stint.Meter, len(limits))
	for i, l := range limits {
		var err error
		if meters[i], err = stint.NewMeter(l); err != nil {
			return nil, err
		}
		if l.Algorithm() == stint.SlidingLog && l.Count() > s.maxLog {
			return nil, fmt.Errorf("stint: limit %q: a log of %d is more than the %d that this store keeps (Options.MaxLog): sliding_buckets needs far less",
				l.Name(), l.Count(), s.maxLog)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	s.releaseSome(2)
	b := &bound{store: s, name: name, limits: make([]*limit, len(limits))}
	for i, m := range meters {
		b.limits[i] = s.bind(name, m)
	}
	s.hold(b)
	return b, nil
}

// bind makes or changes a limit under a name.
func (s *Store) bind(under string, m *stint.Meter) *limit {
	name := under + apart + m.Limit().ID()
	l := s.byName[name]
	if l == nil {
		l = &limit{name: name, salt: s.seed.hash(name)}
		l.meter.Store(m)
		s.byName[name] = l
		s.limits = append(s.limits, l)
		s.adoptSaved(l)
		return l
	}
	if l.meter.Load().Limit() != m.Limit() {
		l.meter.Store(m) // before the tables: what is made from here on is right
		for i := range s.shards {
			s.change(&s.shards[i], l, m)
		}
		s.watchers.everywhere()
	}
	return l
}

// change carries the keys of a limit in one shard over to its new form.
func (s *Store) change(sh *shard, l *limit, m *stint.Meter) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	old, now := l.tables[sh.index], sh.tick(s.clock.now())
	if old == nil || old.meter == m {
		return
	}
	t := newTable(m)
	next := &t
	at := s.at(next, now)
	for i := range old.segments {
		for h, slot := range old.slots(old.segments[i]) {
			sh.carry(next, next.insert(sh, h, at), old, slot, at)
			old.forget(sh, slot)
		}
	}
	if old.cells != nil {
		sh.carryCells(s, next, old, at)
	}
	sh.drop(old)
	sh.enter(l, next)
}

// carryCells carries the overflow cells over.
func (sh *shard) carryCells(s *Store, next, old *table, now int64) {
	for i := range s.cells {
		from := old.cellAt(i)
		if old.indirect && from[0] == 0 {
			continue
		}
		next.needCells(s)
		sh.carry(next, next.cellAt(i), old, from, now)
	}
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
	if next.meter == old.meter {
		next.meter.Move(next.state(sh, to), state)
		return
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
	defer s.watchers.everywhere() // they find it closed
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, l := range s.limits {
			l.tables[i] = nil
		}
		sh.slotted, sh.indirect = roster{}, roster{}
		sh.slab, sh.keys, sh.opened = slab{}, 0, nil
		sh.moves++
		sh.mu.Unlock()
	}
	s.byName, s.limits, s.pending = nil, nil, nil
	return nil
}

var errTTL = errors.New("stint: a reservation needs a time to live above zero")
