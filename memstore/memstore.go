// Package memstore keeps the state of limits in this process: exact, bounded
// and without work for the garbage collector.
//
// Most programs call [New] once, with the zero Options, and make a
// [stint.Limiter] for each thing they limit. [Single] is the limiter for
// callers that have no keys.
//
// Guarantees: a decision is what docs/SEMANTICS.md says, whatever other
// goroutines do; time never goes back; a key with a state of its own is
// forgotten only once it is as if never seen; there are never more keys than
// Options.MaxKeys, and beyond that new keys share overflow cells.
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
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/meter"
)

// DefaultReservations is the default of [Options.MaxReservations].
const DefaultReservations = 100_000

// Options are the bounds of a store. The zero value suits most programs.
type Options struct {
	// MaxKeys is the most keys that have a state of their own, counted once
	// for each limit they are under. It is divided evenly over the shards.
	// The default value is 1,048,576.
	MaxKeys int
	// MaxBytes is about the most bytes that the states of sliding_log and
	// sliding_buckets take. Beyond it, if no idle key can be forgotten, new keys
	// of these limits share overflow cells, and logs merge their newest entries,
	// which makes them stricter, never laxer. Overflow cells come on top, up to
	// 1,024 states for each limit. The default value is 1 GiB.
	MaxBytes int64
	// MaxLog is the largest count of a sliding_log that is accepted. The
	// default value is 1,000,000.
	MaxLog int64
	// MaxReservations is the most reservations that may be open, neither settled
	// nor expired. The same number of settled ones, the latest, are remembered
	// until they expire, to give the same answer when settled again. The default
	// value is DefaultReservations.
	MaxReservations int
	// Now, if set, is the clock: nanoseconds since the Unix epoch. It is for
	// simulations and tests. While it is behind the latest time it has shown,
	// decisions are made at that time. The default is a clock that never steps.
	Now func() int64
	// CoarseClock reads the clock every half millisecond in a goroutine, and not
	// at each decision: for machines on which reading it costs more than
	// deciding. Time then lags by half a millisecond as a rule, and longer while
	// the scheduler does not run the goroutine; it never leads. So no decision is
	// laxer: a key may be denied the units that its limit gives back during the lag
	// (rate·lag), and waits are longer by the lag. The price is some two thousand
	// wake-ups a second. Close ends the goroutine. CoarseClock is ignored when Now
	// is set. The default value is false.
	CoarseClock bool
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
	names        map[string]*name
	accounts     map[string]*account          // by label
	equal        map[stint.Limit]*meter.Meter // what equal limits share
	list         []*account                   // the same accounts, for releaseSome
	releaseNext  int                          // the index in list that releaseSome looks at next
	reservations reservations
	watchers     watchers

	fullReservations atomic.Uint64

	inFlight func() *inflight.Room // makes the Room at the first call
}

var _ stint.RoomStore = (*Store)(nil)

// InFlight implements [stint.RoomStore]. A snapshot does not hold units in flight: they end
// with the process.
func (s *Store) InFlight() *inflight.Room { return s.inFlight() }

// New returns an empty store.
func New(o Options) *Store {
	s := new(Store)
	s.inFlight = sync.OnceValue(func() *inflight.Room { return inflight.NewRoom(flights{inflight.NewMemory(), s}, 0) })
	if s.clock.init(o.Now); o.CoarseClock {
		s.clock.coarsen()
	}
	s.init(o)
	return s
}

// init makes all but the clock.
func (s *Store) init(o Options) {
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
		o.MaxReservations = DefaultReservations
	}
	shards := mostShards
	for shards > 1 && o.MaxKeys/shards < keysPerShard {
		shards /= 2
	}
	s.seed, s.shift = newSeed(), uint8(64-bits.Len(uint(shards-1)))
	s.cells, s.shards = 1<<cellBits/shards, make([]shard, shards)
	s.maxLog, s.names, s.accounts = o.MaxLog, make(map[string]*name), make(map[string]*account)
	s.reservations.init(o.MaxReservations)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.index, sh.cells.apart = i, apartBit
		sh.maxKeys = o.MaxKeys / shards
		sh.maxBytes = o.MaxBytes / int64(shards)
	}
}

// Close implements [stint.Store]: it releases all keys. With
// Options.CoarseClock it waits for the goroutine of the clock, the only one.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return stint.ErrClosed
	}
	s.clock.stop()
	s.reservations.init(0)
	defer s.watchers.everywhere() // whoever waits finds the store closed
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, a := range s.list {
			if all := a.tables.Load(); all != nil {
				all[i] = nil
			}
		}
		sh.slotted, sh.indirect = roster{}, roster{}
		sh.slab, sh.cells, sh.keys, sh.opened = slab{}, slab{apart: apartBit}, 0, nil
		sh.moves++
		sh.mu.Unlock()
	}
	s.names, s.accounts, s.list, s.equal = nil, nil, nil, nil
	return nil
}

var errTTL = errors.New("stint: a reservation needs a time to live above zero")
