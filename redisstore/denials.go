package redisstore

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/maphash"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
)

// denials are the denials of the server under one limit, by key. Each is kept until the
// denied cost would pass, at most Modes.DenialCache. They may be used from many goroutines
// at once.
type denials struct {
	of    *modes
	table *table[denial]
}

// A denial is the server's answer to the least cost that it has denied.
type denial struct {
	cost   int64
	at     int64 // when the answer came, on the node's clock, rounded down to µs
	until  int64
	given  given // how much had been given back before the server was asked
	answer stint.Decision
	drain  *fastBucket // the parameters that the state drains by, if it is a bucket
}

// deniedPerShard is how many denials a shard keeps: 16,384 keys for a limit.
const deniedPerShard = 256

// newDenials returns nil if the cache is off.
func newDenials(of *modes) *denials {
	if of.DenialCache < 0 {
		return nil
	}
	return &denials{of, newTable[denial]()}
}

// known returns the denial of a cost, and how long ago it was; nil if the server must be
// asked. own returns how often something was given back to the key.
func (d *denials) known(key string, cost int64, own func() int64) (*denial, time.Duration) {
	if d == nil || d.of.store.closed.Load() {
		return nil, 0
	}
	shard := d.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	known := shard.all[key]
	if known == nil {
		return nil, 0
	}
	now := d.of.clock()
	if now >= known.until || now < known.at || !known.given.stands(&d.of.returns, own) {
		delete(shard.all, key)
		return nil, 0
	}
	if cost < known.cost {
		return nil, 0
	}
	d.of.store.tally.denialsCached.Add(1)
	return known, time.Duration((now - known.at) / 1000 * 1000)
}

// learn keeps a denial. one.given must be from before the server was asked.
func (d *denials) learn(key string, one *denial) {
	if d == nil {
		return
	}
	wait := d.of.DenialCache
	if retry, ok := one.answer.RetryAfter.Duration(); ok {
		wait = min(wait, retry)
	}
	at := d.of.clock() / 1000 * 1000
	one.at, one.until = at, at+int64(wait)
	shard := d.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	if len(shard.all) >= deniedPerShard && shard.all[key] == nil {
		makeRoom(shard.all, at)
	}
	shard.put(key, one)
}

// makeRoom forgets the outdated among a few denials, or else any one.
func makeRoom(all map[string]*denial, now int64) {
	n := len(all)
	few := 8
	for key, d := range all {
		if few--; now >= d.until || few == 0 && len(all) == n {
			delete(all, key)
		}
		if few == 0 {
			return
		}
	}
}

// drop forgets the denial of a key: a request of it has passed.
func (d *denials) drop(key string) {
	if d == nil {
		return
	}
	shard := d.table.of(key)
	shard.Lock()
	defer shard.Unlock()
	delete(shard.all, key)
}

// after returns the limit's answer at a time since the denial, to as many units as were
// denied (same) or more. The answer of a bucket follows from when it is empty and how it
// drains. Of other limits, the wait for more units and what has become free are not known:
// the answer has the least that they can be. A ban has the same wait for all units.
func (d *denial) after(f *compiled, units int64, same bool, since time.Duration) stint.Decision {
	out := d.answer
	out.ResetAfter = max(out.ResetAfter-since, 0)
	if wait, ok := out.RetryAfter.Duration(); ok {
		out.RetryAfter = stint.Wait(wait - since) // above 0, or the denial would be forgotten
	}
	if q, reset := d.drain, int64(out.ResetAfter)/1000; q != nil && f.limit.Ban() == 0 {
		out.Remaining = max(out.Remaining, min(q.room(reset), d.cost-1))
		if !same && units <= f.capacity {
			out.RetryAfter = max(out.RetryAfter, q.wait(reset, units))
		}
	}
	if units > f.capacity {
		out.RetryAfter = stint.Never
	}
	out.Allowed, out.Denied = false, 1
	return out
}

// returns counts how often something was given back: by a settlement, a refund or a reset.
type returns struct {
	seed maphash.Seed
	all  atomic.Int64
	some [4096]atomic.Int64 // for the keys that share a hash; counted before all
}

// of returns the counter of a state.
func (r *returns) of(begin, end string, l *limit) *atomic.Int64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	h.WriteString(begin)
	h.WriteString(l.segment)
	h.WriteString(end)
	return &r.some[h.Sum64()%uint64(len(r.some))]
}

// note counts a return to the parts of a request.
func (r *returns) note(parts []part) {
	for i := range parts {
		r.of(parts[i].begin, parts[i].end, parts[i].limit).Add(1)
	}
	r.all.Add(1)
}

// given has the counts of returns at a moment: of all keys, and of some. Only if the
// first has changed is the second compared, since that takes longer.
type given struct{ all, own int64 }

func (r *returns) now(own func() int64) given {
	all := r.all.Load()
	return given{all, own()}
}

// stands reports whether nothing was given back to the keys since.
func (g *given) stands(r *returns, own func() int64) bool {
	all := r.all.Load()
	if g.all == all {
		return true
	}
	if g.own != own() {
		return false
	}
	g.all = all
	return true
}

// givenBack returns how often something was given back to a key under the limit.
func (o *boundLimit) givenBack(key string) int64 {
	begin, end := o.store.names.around(key)
	return o.returns.of(begin, end, o.strict.limits[0]).Load()
}

// longKey is the longest key that is kept as it is, in bytes.
const longKey = 256

// briefSecret keeps clients from choosing a short key that equals the hash of another key.
var briefSecret = rand.Text()

// brief returns the text that a key is kept by: of a long key its hash, so that clients
// with long keys do not fill the memory of the process.
func brief(key string) string {
	if len(key) <= longKey {
		return key
	}
	sum := sha256.Sum256([]byte(briefSecret + key))
	return string(sum[:])
}

// A table holds a value for each of many keys. It is divided into shards with a lock each.
type table[T any] struct {
	seed   maphash.Seed
	shards [64]tableShard[T]
}

type tableShard[T any] struct {
	sync.Mutex
	all    map[string]*T
	closed bool     // it takes no more keys
	_      [40]byte // each lock has its own cache line
}

func newTable[T any]() *table[T] {
	return &table[T]{seed: maphash.MakeSeed()}
}

// put adds a value. The shard is locked. It makes its map for the first value, since most
// limits never deny.
func (s *tableShard[T]) put(key string, one *T) {
	if s.all == nil {
		s.all = make(map[string]*T)
	}
	s.all[key] = one
}

// of returns the shard that holds a key.
func (t *table[T]) of(key string) *tableShard[T] {
	return &t.shards[maphash.String(t.seed, key)%uint64(len(t.shards))]
}

// locked ranges over the shards, and holds the lock of each meanwhile.
func (t *table[T]) locked() iter.Seq[*tableShard[T]] {
	return func(yield func(*tableShard[T]) bool) {
		for i := range t.shards {
			s := &t.shards[i]
			s.Lock()
			more := yield(s)
			s.Unlock()
			if !more {
				return
			}
		}
	}
}
