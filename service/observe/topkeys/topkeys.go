// Package topkeys keeps which keys are denied most and which are nearest to their
// limits, in bounded memory and at a constant cost.
//
// There is room for 1,024 keys of each kind, about 0.7 MB in all, whatever is
// asked. A decision that neither denies nor leaves less than a fifth of a limit
// costs a comparison for each limit; another one a lock and a walk over the 64
// places of a shard, and allocates nothing. A key that finds no room takes the
// place of the one with the least count, and its count with it (Metwally, Agrawal
// and El Abbadi's space-saving): what may be too much of a count is said.
package topkeys

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/stint-dev/stint/policy"
)

const (
	shards  = 16
	places  = 64 // of a shard, for each of both kinds
	longest = 256
	minutes = Minutes
)

// Minutes is for how long denials are counted.
const Minutes = 10

// A Tracker is what is known of keys. Make one with [New]. It may be used from many
// goroutines at once.
type Tracker struct {
	seed   maphash.Seed
	shards [shards]shard
}

// New returns an empty tracker.
func New() *Tracker { return &Tracker{seed: maphash.MakeSeed()} }

// A shard is the keys of some hashes.
type shard struct {
	mu      sync.Mutex
	minute  int64 // that counts are of, since the Unix epoch
	denied  [places]uint64
	near    [places]uint64 // hashes; 0 is a place that is free
	totals  [places]uint64 // of denials, together, since all are looked at
	scores  [places]float64
	refresh int // of scores: they wear off
	denials [places]denials
	nears   [places]near
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

// denials are those of one key.
type denials struct {
	name
	over   uint64 // how much of the total may be of keys that had the place before
	each   [minutes]uint32
	since  time.Time // of the first, without a pause as long as the minutes
	last   time.Time
	until  time.Time         // when it would pass again; zero is never
	limit  *policy.RuleLimit // that denied
	cost   int64             // of what it denied
	shadow bool
	own    bool // by a block that an operator gave the key
	banned bool // by a ban, until then
}

// near is how a key stood under a limit when it last passed or was denied.
type near struct {
	name
	limit *policy.RuleLimit
	used  int64
	at    time.Time
	reset time.Duration // until it is as if never seen
}

// nearFrom is which part of a limit must be used: 4 in 5.
const nearFrom = 5

// Decided notes a decision.
func (b *Tracker) Decided(r *policy.Result) {
	var now time.Time
	for i := range r.Rules {
		e := &r.Rules[i]
		limited := e.Action == "" && e.Remaining >= 0
		if !e.Denied && (!limited || e.Remaining > e.Limit.Capacity()/nearFrom) {
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

// firstDenied reports whether no entry before i of the same rule denied: a
// denial counts once for each rule.
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

// expire forgets the minutes that are over.
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

// placeOf returns the place of a hash, else the one with the least count, which is for
// a new key.
func placeOf[N cmp.Ordered](id uint64, ids *[places]uint64, counts *[places]N) (at int, known bool) {
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
	at, known := placeOf(id, &s.denied, &s.totals)
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
	at, known := placeOf(id, &s.near, &s.scores)
	n := &s.nears[at]
	if !known {
		if s.refresh++; s.refresh%places == 0 {
			for i := range s.nears {
				s.scores[i] = s.nears[i].score(now)
			}
		}
		n.set(e.Rule, key)
		s.near[at] = id
	}
	n.limit, n.used, n.at, n.reset = e.RuleLimit, e.Limit.Capacity()-e.Remaining, now, e.ResetAfter
	s.scores[at] = n.score(now)
}

// score is which part of the limit is used, about: what was used then wears off
// evenly until the key is as if never seen.
func (n *near) score(now time.Time) float64 {
	if n.limit == nil {
		return -1
	}
	left := n.reset - now.Sub(n.at)
	if left <= 0 || n.reset <= 0 {
		return 0
	}
	return float64(n.used) / float64(n.limit.Limit.Capacity()) * (float64(left) / float64(n.reset))
}

// Denied is a key that a rule has denied in the last minutes.
type Denied struct {
	Rule, Key string
	// Count is how often, Over how much of that may be of other keys.
	Count, Over uint64
	// Each is how often in each of the last minutes, the present one first.
	Each []uint32
	// Since is when it began, Last when it was last, Until when it would have
	// passed again, by the last answer; zero is never.
	Since, Last, Until time.Time
	// Limit is which denied last, Cost what it denied.
	Limit  *policy.RuleLimit
	Cost   int64
	Shadow bool
	// Own reports whether it was by a block that an operator gave the key, Banned by a
	// ban; then it is known until the ban ends, also with a Count of 0.
	Own, Banned bool
}

// Denied returns the keys denied most in the last minutes, those first of which
// that is most certain.
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

// Of returns what is known of the denials of a key, and false if that is nothing.
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
	// Used is how much it had used when it last asked, at At; Part about which
	// part of the limit is used now.
	Used int64
	At   time.Time
	Part float64
}

// Nearest returns the keys nearest to a limit, the nearest first.
func (b *Tracker) Nearest(n int) []Near {
	var all []Near
	now := time.Now()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for k := range s.nears {
			one := &s.nears[k]
			if part := one.score(now); part > 0 {
				all = append(all, Near{one.rule, one.key(), one.limit, one.used, one.at, part})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Near) int {
		return cmp.Or(cmp.Compare(b.Part, a.Part), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(max(n, 0), len(all))]
}
