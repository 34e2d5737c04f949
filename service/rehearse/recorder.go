package rehearse

import (
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/policy"
)

// RecorderOptions are the bounds of a recorder: whichever is reached first holds.
type RecorderOptions struct {
	// Requests is the most requests that are kept. The default value is
	// 1,000,000.
	Requests int
	// Bytes is the most memory that they take. The default value is 64 MiB.
	Bytes int
	// Age is how long a request is kept. The default value is 15 minutes.
	Age time.Duration
	// Attributes are kept beside those that the rules look at, so that rules
	// which look at more can be tried. The default value is none.
	Attributes []string
}

const (
	// mostStripes is how many locks there are at most: enough that a stripe is
	// rarely busy.
	mostStripes = 16
	// segmentBytes is what is allocated at once; of a small bound, a 16th.
	segmentBytes = 256 << 10
	// mostAttributes is how many attributes of a request are kept. Rules that
	// look at more are rare, and each costs time at every request.
	mostAttributes = 32
	// longest is how many bytes of a value are kept whole.
	longest = 256
	// mostBody is the longest that a request can be, see appendBody.
	mostBody = 32 + (mostAttributes+policy.MaxCosts)*(10+longest)
)

// A Recorder keeps the last requests. Make one with New.
type Recorder struct {
	o       RecorderOptions
	seed    maphash.Seed
	schema  atomic.Pointer[schema] // of the rules that decided last
	stripes []stripe
}

// A schema is which attributes of requests under some rules are kept.
type schema struct {
	rules *policy.Rules
	names []string
	left  []string // that the rules look at and that are not kept
}

// A stripe is a part of the requests, in the order of their times.
type stripe struct {
	mu       sync.Mutex
	segments []*segment // the last is being written
	requests int        // in all of them
	dropped  bool       // whether any request was
	bytes    int        // that they take

	mostRequests, mostBytes, room int
	_                             [64]byte // apart from the next in the processor's cache
}

// A segment is requests of one schema, one after the other. What is written is
// not written again.
type segment struct {
	schema      *schema
	data        []byte
	requests    int
	first, last int64 // nanoseconds since the Unix epoch
}

// NewRecorder returns a Recorder.
func NewRecorder(o RecorderOptions) *Recorder {
	if o.Requests <= 0 {
		o.Requests = 1_000_000
	}
	if o.Bytes <= 0 {
		o.Bytes = 64 << 20
	}
	if o.Age <= 0 {
		o.Age = 15 * time.Minute
	}
	n := 1
	for n < mostStripes && n < runtime.GOMAXPROCS(0) && o.Bytes/(2*n) >= 16*mostBody {
		n *= 2
	}
	r := &Recorder{o: o, seed: maphash.MakeSeed(), stripes: make([]stripe, n)}
	for i := range r.stripes {
		s := &r.stripes[i]
		s.mostRequests, s.mostBytes = max(o.Requests/n, 1), o.Bytes/n
		s.room = min(max(s.mostBytes/16, 2*mostBody), segmentBytes)
	}
	return r
}

// Decided keeps a request. It is for [policy.Options.OnDecision].
func (r *Recorder) Decided(rules *policy.Rules, attrs policy.Attributes, cost int64, result *policy.Result) {
	r.add(rules, attrs, charge{cost, result.Costs, result.Decision.Allowed}, time.Now)
}

// add keeps a request that comes now, which is asked under the stripe's lock so
// that its requests are in order.
func (r *Recorder) add(rules *policy.Rules, attrs policy.Attributes, c charge, now func() time.Time) {
	sc := r.schema.Load()
	if sc == nil || sc.rules != rules {
		sc = r.newSchema(rules, sc)
	}
	var room [512]byte
	body := r.appendBody(room[:0], sc.names, attrs, c)
	s := &r.stripes[rand.Uint32N(uint32(len(r.stripes)))]
	s.mu.Lock()
	s.add(sc, body, now().UnixNano(), r.o.Age)
	s.mu.Unlock()
}

// newSchema notes which attributes rules look at. Where nothing about that has
// changed, the schema before goes on under their name.
func (r *Recorder) newSchema(rules *policy.Rules, was *schema) *schema {
	names := rules.Attributes()
	for _, name := range r.o.Attributes {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	sc := &schema{rules: rules, names: names}
	if len(names) > mostAttributes {
		sc.names, sc.left = names[:mostAttributes], names[mostAttributes:]
	}
	r.schema.CompareAndSwap(was, sc)
	return sc
}

// add appends a request, in a new segment if it does not fit.
func (s *stripe) add(sc *schema, body []byte, at int64, age time.Duration) {
	var g *segment
	if n := len(s.segments); n > 0 {
		g = s.segments[n-1]
	}
	if g == nil || g.schema != sc || len(g.data)+len(body)+maxHead > cap(g.data) || g.requests >= s.mostRequests/8 {
		g = s.grow(sc, at, age)
	}
	g.append(body, at)
	if s.requests++; s.requests > s.mostRequests {
		s.drop()
	}
}

// grow begins a segment. The oldest make room for it, and those that are too
// old.
func (s *stripe) grow(sc *schema, at int64, age time.Duration) *segment {
	for len(s.segments) > 0 && (s.bytes+s.room > s.mostBytes || s.segments[0].last < at-int64(age)) {
		s.drop()
	}
	g := &segment{schema: sc, data: make([]byte, 0, s.room), first: at, last: at}
	s.segments = append(s.segments, g)
	s.bytes += s.room
	return g
}

// drop forgets the oldest segment. If there is only one, the next request begins another.
func (s *stripe) drop() {
	s.requests -= s.segments[0].requests
	s.bytes -= s.room
	s.segments[0] = nil
	s.segments = s.segments[1:]
	s.dropped = true
}

// Recording returns what is kept and is not older than RecorderOptions.Age. It shares
// the memory, and costs little.
func (r *Recorder) Recording(now time.Time) *Recording {
	all := &Recording{since: now.Add(-r.o.Age).UnixNano(), complete: true}
	for i := range r.stripes {
		s := &r.stripes[i]
		s.mu.Lock()
		var shard []segment
		all.complete = all.complete && !s.dropped && (len(s.segments) == 0 || s.segments[0].first >= all.since)
		for _, g := range s.segments {
			if g.last >= all.since {
				shard = append(shard, *g) // with as much of the data as there is now
			}
		}
		s.mu.Unlock()
		if len(shard) > 0 {
			all.shards = append(all.shards, shard)
		}
	}
	return all
}
