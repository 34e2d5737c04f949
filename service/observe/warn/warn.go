// Package warn reports when a key has used most of a limit, or is first denied, at most once a
// period and key, in bounded memory.
//
// A decision that leaves enough costs a comparison for each limit. The package remembers up to
// 65,536 warnings. Beyond that, new warnings are left out and counted.
package warn

import (
	"crypto/rand"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// A Level is the kind of a warning.
type Level string

// The levels.
const (
	Near   Level = "near"   // a key has used most of a limit
	Denied Level = "denied" // a limit denied it
)

// A Warning is a warning as webhooks send it.
type Warning struct {
	ID    string    `json:"id"`
	Type  string    `json:"type"`
	At    time.Time `json:"timestamp"`
	About About     `json:"data"`
}

// An About names the key and the limit of a warning.
type About struct {
	Rule         string `json:"rule"`
	Key          string `json:"key"`
	KeyHash      string `json:"key_hash"`
	Limit        string `json:"limit"`
	Used         *int64 `json:"used"` // null if it is not known
	Of           int64  `json:"of"`
	RetryAfterMS *int64 `json:"retry_after_ms,omitempty"`
	Banned       bool   `json:"banned,omitempty"` // the limit has banned the key
}

// Options are the options of a Warner.
type Options struct {
	// At is how many percent of a limit count as most of it.
	At int
	// Send receives warnings, and must not block. By default warnings are only counted.
	Send func(*Warning)
}

const (
	shards = 16
	slots  = 4096 // in a shard
	// least is how often a key is warned of a limit whose period is shorter.
	least = time.Minute
)

// A Warner warns. It may be used from many goroutines at once.
type Warner struct {
	o      Options
	seed   maphash.Seed
	shards [shards]shard
	counts sync.Map // by rule: *count
	full   atomic.Uint64
}

type shard struct {
	mu    sync.Mutex
	until map[uint64]int64 // by key, limit and level: when it may be warned again, in Unix seconds
	swept int64
}

type count struct{ near, denied atomic.Uint64 }

// New returns a Warner.
func New(o Options) *Warner {
	w := &Warner{o: o, seed: maphash.MakeSeed()}
	for i := range w.shards {
		w.shards[i].until = make(map[uint64]int64)
	}
	return w
}

// Decided looks at a decision, and warns if it must.
func (w *Warner) Decided(r *policy.Result) {
	for i := range r.Rules {
		e := &r.Rules[i]
		if e.Action != "" || e.Shadow || e.Remaining < 0 {
			continue
		}
		switch {
		case e.Denied:
			w.warn(r, i, Denied)
		case e.Used >= percentOf(e.Capacity, w.o.At):
			w.warn(r, i, Near)
		}
	}
}

// percentOf returns a percentage of a capacity, rounded up.
func percentOf(of int64, percent int) int64 {
	p := int64(percent)
	return of/100*p + (of%100*p+99)/100
}

// warn warns of r.Rules[i], unless it has warned in this period.
func (w *Warner) warn(r *policy.Result, i int, level Level) {
	e, key := &r.Rules[i], r.Key(i)
	var h maphash.Hash
	h.SetSeed(w.seed)
	for _, part := range [...]string{string(level), e.Label, e.Variant, key} {
		_, _ = h.WriteString(part) // a hash returns no error
		_ = h.WriteByte(0)
	}
	id, now := h.Sum64(), time.Now()
	if !w.shards[id%shards].first(id, now.Unix(), max(e.Limit.Period(), e.Limit.Ban(), least), &w.full) {
		return
	}
	all, _ := w.counts.LoadOrStore(e.Rule, new(count))
	c := all.(*count)
	if level == Near {
		c.near.Add(1)
	} else {
		c.denied.Add(1)
	}
	if w.o.Send == nil {
		return
	}
	one := &Warning{ID: "msg_" + rand.Text(), Type: "stint.limit." + string(level), At: now.UTC(), About: About{
		Rule: e.Rule, Key: key, KeyHash: r.KeyHash(i), Limit: e.Text, Of: e.Capacity, Banned: e.Banned,
	}}
	if used := e.Used; used >= 0 {
		one.About.Used = &used
	}
	if e.Denied && e.RetryAfter != stint.Never {
		ms := (int64(e.RetryAfter) + int64(time.Millisecond) - 1) / int64(time.Millisecond)
		one.About.RetryAfterMS = &ms
	}
	w.o.Send(one)
}

// first reports whether a warning is the first in its period, and remembers it.
func (s *shard) first(id uint64, now int64, period time.Duration, full *atomic.Uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, there := s.until[id]
	if there && now < until {
		return false
	}
	if !there && len(s.until) >= slots {
		if s.swept != now {
			s.swept = now
			for other, until := range s.until {
				if now >= until {
					delete(s.until, other)
				}
			}
		}
		if len(s.until) >= slots {
			full.Add(1)
			return false
		}
	}
	s.until[id] = now + int64((period+time.Second-1)/time.Second)
	return true
}

// Keep drops the counts of all rules but these.
func (w *Warner) Keep(rules map[string]bool) {
	w.counts.Range(func(rule, _ any) bool {
		if !rules[rule.(string)] {
			w.counts.Delete(rule)
		}
		return true
	})
}

// Counts calls each with the number of warnings of each level and rule. It returns how many were
// left out because there was no room.
func (w *Warner) Counts(each func(rule string, level Level, n uint64)) (leftOut uint64) {
	w.counts.Range(func(rule, c any) bool {
		each(rule.(string), Near, c.(*count).near.Load())
		each(rule.(string), Denied, c.(*count).denied.Load())
		return true
	})
	return w.full.Load()
}
