package observe

import (
	"cmp"
	"hash/maphash"
	"log/slog"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/policy"
)

// denials writes the log: the first denial of a key under a rule at once, and once a period how
// many more there were. It remembers a bounded number of keys, and counts denials of other keys
// together. A nil denials logs nothing.
//
// A key's first line and its summary each count as a line, so there is room for half as many keys
// as Options.Lines. At the end of a period, keys that are still being denied stay, the most often
// denied first, but they may take only half of the room, so that a few stubborn clients do not hide
// all others. A quarter of the room is for rules that have few lines, so that a flood under one
// rule does not hide the others.
//
// Rules with a sample are separate: that fraction of their denials gets a line each, up to
// mostSampled.
type denials struct {
	log   *slog.Logger
	clear bool // show keys in clear
	room  int
	seed  maphash.Seed

	mu    sync.Mutex                // held to replace known
	known atomic.Pointer[culprits]  // replaced as a whole
	rest  atomic.Uint64             // denials of keys that had no room
	since atomic.Pointer[time.Time] // when the period began

	failures, refusals, wrongTokens repeats

	lost       atomic.Bool  // a line says that the store failed, and none since that it decides again
	lastFailed atomic.Int64 // when the store last failed, in Unix nanoseconds; 0 after a line that it decides again

	sample  map[string]float64 // by rule
	sampled atomic.Uint64      // lines of samples in this period
}

// mostSampled is the most lines of samples in a period.
const mostSampled = 1000

// A culprits is the keys that have lines. It is never changed.
type culprits struct {
	keys  map[uint64]*culprit
	rules map[string]int // how many keys each rule has
}

// with returns a copy with one more key.
func (c *culprits) with(id uint64, one *culprit) *culprits {
	next := &culprits{make(map[uint64]*culprit, len(c.keys)+1), make(map[string]int, len(c.rules)+1)}
	maps.Copy(next.keys, c.keys)
	maps.Copy(next.rules, c.rules)
	next.keys[id] = one
	next.rules[one.rule]++
	return next
}

// full reports whether there is no room for another key of a rule.
func (d *denials) full(c *culprits, rule string) bool {
	n := len(c.keys)
	return n >= d.room || n >= d.room-d.room/4 && c.rules[rule] >= max(1, d.room/16)
}

// A culprit is one key that a rule has denied.
type culprit struct {
	entrypoint, rule string
	shadow           bool
	missing          string // an attribute of the key that is missing, so that clients share it
	key              slog.Attr
	more             atomic.Uint64 // denials since the last line on it
	since            time.Time     // when that line was written
}

func newDenials(o Options) *denials {
	d := &denials{log: o.Log, clear: o.LogKeys, room: max(o.Lines/2, 1), seed: maphash.MakeSeed(), sample: o.Sample}
	d.known.Store(new(culprits))
	now := time.Now()
	d.since.Store(&now)
	return d
}

// denied records that r.Rules[i] denied. If the key has its line, or there is no room for it, that
// takes no lock and allocates nothing.
func (d *denials) denied(entrypoint string, r *policy.Result, i int, q *Request) {
	if d == nil {
		return
	}
	if fraction, sampled := d.sample[r.Rules[i].Rule]; sampled {
		d.sampleOf(fraction, entrypoint, r, i, q)
		return
	}
	id := maphash.String(d.seed, r.Key(i)) ^ bits.RotateLeft64(maphash.String(d.seed, r.Rules[i].Rule), 1)
	known := d.known.Load()
	switch c := known.keys[id]; {
	case c != nil:
		c.more.Add(1)
	case d.full(known, r.Rules[i].Rule) || !d.add(id, entrypoint, r, i, q):
		d.rest.Add(1)
	}
}

// longestKey bounds the bytes of a key in clear in a line.
const longestKey = 256

// add writes the first line about a key. It returns false if there is no room.
func (d *denials) add(id uint64, entrypoint string, r *policy.Result, i int, q *Request) bool {
	e, c := &r.Rules[i], d.culprit(entrypoint, r, i)
	d.mu.Lock()
	old := d.known.Load()
	if was := old.keys[id]; was != nil || d.full(old, e.Rule) {
		d.mu.Unlock()
		if was != nil {
			was.more.Add(1)
		}
		return was != nil
	}
	d.known.Store(old.with(id, c))
	d.mu.Unlock()

	d.log.Info("denied", append(c.attrs(), about(e, q)...)...)
	return true
}

// sampleOf logs a random fraction of the denials.
func (d *denials) sampleOf(fraction float64, entrypoint string, r *policy.Result, i int, q *Request) {
	switch {
	case fraction < 1 && rand.Float64() >= fraction:
	case d.sampled.Add(1) > mostSampled:
		d.rest.Add(1)
	default:
		attrs := append(d.culprit(entrypoint, r, i).attrs(), about(&r.Rules[i], q)...)
		d.log.Info("denied", append(attrs, "sample", fraction)...)
	}
}

// culprit returns the key that a rule denied.
func (d *denials) culprit(entrypoint string, r *policy.Result, i int) *culprit {
	e := &r.Rules[i]
	c := &culprit{entrypoint: entrypoint, rule: e.Rule, shadow: e.Shadow, missing: r.Missing(i), since: time.Now()}
	if d.clear {
		key := r.Key(i)
		c.key = slog.String("key", key[:min(len(key), longestKey)])
	} else {
		c.key = slog.String("key_hash", r.KeyHash(i))
	}
	return c
}

// about returns the attributes of a line about one denial, without its key.
func about(e *policy.RuleResult, q *Request) []any {
	attrs := []any{"limit", e.Text}
	if e.Action == "" {
		attrs = append(attrs, "cost", e.Cost, "retry_after", e.RetryAfter.String())
	}
	if trace, ok := q.Trace(); ok {
		attrs = append(attrs, "trace_id", trace.ID)
	}
	return attrs
}

// attrs returns the attributes of every line about a culprit.
func (c *culprit) attrs() []any {
	attrs := []any{"interface", c.entrypoint, "rule", c.rule}
	if c.key.Value.String() != "" { // the key of a block is empty
		attrs = append(attrs, c.key)
	}
	switch c.missing {
	case "":
	case "ip":
		attrs = append(attrs, "missing", "ip (none, or no address)")
	default:
		attrs = append(attrs, "missing", c.missing)
	}
	if c.shadow {
		attrs = append(attrs, "shadow", true)
	}
	return attrs
}

// sumUp ends a period: it writes a line for each key that was denied again, the most often denied
// first, and one for all keys without room. A denial that is counted at the same time may be
// missing from the lines, but not from the metrics.
func (d *denials) sumUp(now time.Time) {
	type again struct {
		id    uint64
		c     *culprit
		more  uint64
		since time.Time
	}
	d.mu.Lock()
	var list []again
	for id, c := range d.known.Load().keys {
		if n := c.more.Swap(0); n > 0 {
			list = append(list, again{id, c, n, c.since})
			c.since = now
		}
	}
	slices.SortFunc(list, func(a, b again) int { return cmp.Compare(b.more, a.more) })
	stay := new(culprits)
	for _, a := range list[:min(len(list), d.room/2)] {
		stay = stay.with(a.id, a.c)
	}
	d.known.Store(stay)
	d.mu.Unlock()

	for _, a := range list {
		d.log.Info("denied again", append(a.c.attrs(), "times", a.more, "since", a.since)...)
	}
	d.sampled.Store(0)
	since := d.since.Swap(&now)
	if n := d.rest.Swap(0); n > 0 {
		d.log.Info("denied others", "times", n, "since", *since)
	}
	d.failures.sumUp(func(cause string, times uint64) {
		what := "store failed again"
		if cause == endUnknown || cause == attributeUnknown || cause == notReady {
			what = "requests refused again"
		} else if d.lastFailed.Load() != 0 {
			d.lost.Store(true)
		}
		d.log.Error(what, "cause", cause, "times", times, "since", *since)
	})
	d.refusals.sumUp(func(cause string, times uint64) {
		at, why, _ := strings.Cut(cause, " ")
		d.log.Info("request refused again", "interface", at, "why", why, "times", times, "since", *since)
	})
	d.wrongTokens.sumUp(func(cause string, times uint64) {
		at, address, _ := strings.Cut(cause, " ")
		d.log.Warn("wrong token again", "interface", at, "address", address, "times", times, "since", *since)
	})
}
