// Package topkeys finds the keys that are denied most and those nearest to their limits, in bounded
// memory and at a constant cost.
//
// It holds up to 1,024 keys of each kind, about 0.7 MB in all. A decision that neither denies nor
// leaves less than a fifth of a limit costs a comparison for each limit. Other decisions cost a
// lock and a scan of the 64 slots of a shard, and allocate nothing. A new key that finds no free
// slot replaces the key with the least count, and inherits its count (the space-saving algorithm of
// Metwally, Agrawal and El Abbadi). Results say how much of a count may be inherited.
package topkeys

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/policy"
)

const (
	shards  = 16
	slots   = 64 // in a shard, for each of both kinds
	longest = 256
	minutes = Minutes
)

// Minutes is how long denials are counted.
const Minutes = 10

// A Tracker tracks keys. Make one with [New]. It may be used from many goroutines at once.
type Tracker struct {
	seed   maphash.Seed
	shards [shards]shard
}

// New returns an empty tracker.
func New() *Tracker { return &Tracker{seed: maphash.MakeSeed()} }

// A shard has the keys whose hashes belong to it.
type shard struct {
	mu      sync.Mutex
	minute  int64 // the present minute of the counts, since the Unix epoch
	denied  [slots]uint64
	near    [slots]uint64 // hashes; 0 is a free slot
	totals  [slots]uint64 // of denials; adjacent in memory, since all are scanned
	scores  [slots]float64
	refresh int // counts decisions until scores, which wear off, are computed anew
	denials [slots]denials
	nears   [slots]near
}

// A name is a key under a rule.
type name struct {
	rule   string
	length uint16
	bytes  [longest]byte
}

func (n *name) set(rule, key string) {
	n.rule, n.length = rule, uint16(copy(n.bytes[:], key))
}

func (n *name) key() string { return string(n.bytes[:n.length]) }

// A denials has the denials of one key.
type denials struct {
	name
	over   uint64 // how much of the total may be of keys that had the slot before
	each   [minutes]uint32
	since  time.Time // the first denial with no pause as long as Minutes since
	last   time.Time
	until  time.Time         // when the key would pass again; zero is never
	limit  *policy.RuleLimit // the limit that denied
	cost   int64             // the cost that was denied
	shadow bool
	own    bool // denied by a block that an operator set
	banned bool // denied by a ban that ends at until
}

// A near is the state of a key under a limit when the key last passed or was denied.
type near struct {
	name
	limit *policy.RuleLimit
	used  int64
	of    int64 // the capacity of the limit that decided
	at    time.Time
	reset time.Duration // until the key is as if never seen
}

// A key is near a limit when less than one nearFrom-th of the limit remains.
const nearFrom = 5

// Decided records a decision.
func (b *Tracker) Decided(r *policy.Result) { b.look(r, nearFrom) }

// Settled records what a response has used, however little of a limit that is.
func (b *Tracker) Settled(r *policy.Result) { b.look(r, 1) }

func (b *Tracker) look(r *policy.Result, from int64) {
	var now time.Time
	for i := range r.Rules {
		e := &r.Rules[i]
		limited := e.Action == "" && e.Used >= 0
		if !e.Denied && (!limited || e.Remaining > e.Capacity/from) {
			continue
		}
		if now.IsZero() {
			now = time.Now()
		}
		b.note(r, i, limited, now)
	}
}

func (b *Tracker) note(r *policy.Result, i int, limited bool, now time.Time) {
	e, key := &r.Rules[i], r.Key(i)
	id := b.id(e.Rule, key)
	s := &b.shards[id%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	if e.Denied && firstDenied(r, i) {
		s.denial(id, e, key, now)
	}
	if limited && !e.Shadow {
		of := id ^ bits.RotateLeft64(maphash.String(b.seed, e.Label), 7) | 1
		s.nearer(of, e, key, now)
	}
}

// firstDenied reports whether no entry of the same rule before i denied: a denial counts once for
// each rule.
func firstDenied(r *policy.Result, i int) bool {
	for j := i - 1; j >= 0 && r.Rules[j].Rule == r.Rules[i].Rule; j-- {
		if r.Rules[j].Denied {
			return false
		}
	}
	return true
}

func (b *Tracker) id(rule, key string) uint64 {
	return maphash.String(b.seed, key) ^ bits.RotateLeft64(maphash.String(b.seed, rule), 1) | 1
}

// expire drops the counts of minutes that are over.
func (s *shard) expire(now time.Time) {
	minute := now.Unix() / 60
	passed := minute - s.minute
	if passed <= 0 {
		return
	}
	s.minute = minute
	for i := range s.denials {
		d := &s.denials[i]
		for k := range min(passed, minutes) {
			at := (minute - k) % minutes
			s.totals[i] -= uint64(d.each[at])
			d.each[at] = 0
		}
		if d.over = min(d.over, s.totals[i]); s.totals[i] == 0 && !(d.banned && d.until.After(now)) {
			*d, s.denied[i] = denials{}, 0
		}
	}
}

// slotOf returns the slot of a hash, or for a new key the slot with the least count.
func slotOf[N cmp.Ordered](id uint64, ids *[slots]uint64, counts *[slots]N) (at int, known bool) {
	for i := range ids {
		if ids[i] == id {
			return i, true
		}
		if counts[i] < counts[at] {
			at = i
		}
	}
	return at, false
}

func (s *shard) denial(id uint64, e *policy.RuleResult, key string, now time.Time) {
	at, known := slotOf(id, &s.denied, &s.totals)
	d := &s.denials[at]
	if !known {
		d.set(e.Rule, key)
		s.denied[at], d.over, d.since = id, s.totals[at], now
	}
	s.totals[at]++
	d.each[s.minute%minutes]++
	d.last, d.shadow, d.until = now, e.Shadow, time.Time{}
	d.limit, d.cost = e.RuleLimit, e.Cost
	d.own, d.banned = e.Action == "block" && e.Variant == "override", e.Banned
	if wait, ends := e.RetryAfter.Duration(); ends {
		d.until = now.Add(wait)
	}
}

func (s *shard) nearer(id uint64, e *policy.RuleResult, key string, now time.Time) {
	at, known := slotOf(id, &s.near, &s.scores)
	n := &s.nears[at]
	if !known {
		if s.refresh++; s.refresh%slots == 0 {
			for i := range s.nears {
				s.scores[i] = s.nears[i].score(now)
			}
		}
		n.set(e.Rule, key)
		s.near[at], n.used = id, 0
	}
	n.limit, n.used, n.of, n.at, n.reset = e.RuleLimit, n.usedAt(e, now), e.Capacity, now, e.ResetAfter
	s.scores[at] = n.score(now)
}

// usedAt returns what a key has used, which a decision says only up to the capacity. Of what is
// above it, a bucket's time to reset tells, and else what was known before, as long as that counts.
func (n *near) usedAt(e *policy.RuleResult, now time.Time) int64 {
	switch l := e.Limit; {
	case e.Remaining > 0 || e.Failed != policy.NotFailed:
	case l.Algorithm().Evenly():
		return max(e.Used, ratefields.MulDiv(max(int64(e.ResetAfter-time.Microsecond), 0), l.Count(), int64(l.Period())))
	case n.of == e.Capacity && now.Sub(n.at) < n.reset:
		return max(e.Used, n.used)
	}
	return e.Used
}

// score returns about which fraction of the limit is used now. What a bucket had at the last decision
// wears off evenly until the key is as if never seen; other limits are taken to hold it until then.
func (n *near) score(now time.Time) float64 {
	if n.limit == nil {
		return -1
	}
	left := n.reset - now.Sub(n.at)
	if left <= 0 || n.reset <= 0 {
		return 0
	}
	part := float64(n.used) / float64(n.of)
	if n.limit.Limit.Algorithm().Evenly() {
		part *= float64(left) / float64(n.reset)
	}
	return part
}

// A Denied is a key that a rule has denied in the last minutes.
type Denied struct {
	Rule, Key string
	// Count is how often the key was denied. Up to Over of that may be of other keys.
	Count, Over uint64
	// Each is how often it was denied in each of the last minutes, the present minute first.
	Each []uint32
	// Since is when the denials began, Last when the last one was, and Until when the key would
	// pass again, by the last answer; zero is never.
	Since, Last, Until time.Time
	// Limit is the limit that denied last, and Cost the cost that it denied.
	Limit  *policy.RuleLimit
	Cost   int64
	Shadow bool
	// Own reports whether a block that an operator set on the key denied, and Banned whether a ban
	// did. A banned key is known until the ban ends, even with a Count of 0.
	Own, Banned bool
}

// Denied returns the keys that were denied most in the last minutes, ordered by the count that is
// certain.
func (b *Tracker) Denied(n int) []Denied {
	var all []Denied
	now := time.Now()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.expire(now)
		for k := range s.denials {
			if s.denied[k] != 0 {
				all = append(all, s.denialAt(k))
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Denied) int {
		return cmp.Or(cmp.Compare(b.Count-b.Over, a.Count-a.Over), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(max(n, 0), len(all))]
}

func (s *shard) denialAt(at int) Denied {
	d, each := &s.denials[at], make([]uint32, minutes)
	for k := range int64(minutes) {
		each[k] = d.each[(s.minute-k)%minutes]
	}
	return Denied{d.rule, d.key(), s.totals[at], d.over, each, d.since, d.last, d.until, d.limit, d.cost, d.shadow, d.own, d.banned}
}

// Of returns the denials of a key, and false if none are known.
func (b *Tracker) Of(rule, key string) (Denied, bool) {
	id := b.id(rule, key)
	s := &b.shards[id%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	if at := slices.Index(s.denied[:], id); at >= 0 {
		return s.denialAt(at), true
	}
	return Denied{}, false
}

// A Near is a key that has used much of a limit.
type Near struct {
	Rule, Key string
	Limit     *policy.RuleLimit
	// Used is how much the key had used at its last request, at At, of the capacity Of. Part is
	// about which fraction of that is used now, from 0 to 1.
	Used, Of int64
	At       time.Time
	Part     float64
}

// Nearest returns the keys nearest to a limit, nearest first.
func (b *Tracker) Nearest(n int) []Near {
	var all []Near
	now := time.Now()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for k := range s.nears {
			one := &s.nears[k]
			if part := one.score(now); part > 0 {
				all = append(all, Near{one.rule, one.key(), one.limit, one.used, one.of, one.at, part})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Near) int {
		return cmp.Or(cmp.Compare(b.Part, a.Part), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(max(n, 0), len(all))]
}
