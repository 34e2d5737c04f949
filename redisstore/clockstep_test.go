package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A stepped is a limit of 20 a second on a server whose clock steps.
type stepped struct {
	text  string
	most  func(d time.Duration) int64    // may pass in any stretch of real time, steps back or not
	more  func(step time.Duration) int64 // and with a step forth in it
	ahead time.Duration                  // the longest wait for a unit, after a step back of any size

	bound   []stint.Bound // of each store
	waited  Longest       // of the waits that were answered
	allowed atomic.Int64
	took    *Spans
}

const steppedCount = 20 // few, so that a busy machine reaches it, too

// steppeds returns a limit of each kind. A step forth is to a window, a log or a
// counter the end of one stretch and the begin of another.
func steppeds() []*stepped {
	rate := func(d time.Duration) int64 { return int64(d * steppedCount / time.Second) }
	bucket := func(text string, burst int64, ahead time.Duration) *stepped {
		return &stepped{text: text, ahead: ahead,
			most: func(d time.Duration) int64 { return burst + rate(d) },
			more: func(step time.Duration) int64 { return min(rate(step)+1, burst) }}
	}
	windows := func(text string, edges int64, ahead time.Duration) *stepped { // edges is how many windows have a part in a moment
		return &stepped{text: text, ahead: ahead,
			most: func(d time.Duration) int64 { return (int64(d/time.Second) + edges) * steppedCount },
			more: func(time.Duration) int64 { return edges * steppedCount }}
	}
	all := []*stepped{
		bucket("20/1s", steppedCount, 1050*time.Millisecond),
		bucket("20/1s sliding_counter", steppedCount, 2050*time.Millisecond),
		bucket("20/1s leaky_queue burst 9", 10, 550*time.Millisecond), // and one that starts
		windows("20/1s token_bucket_interval", 2, 2*time.Second),
		windows("20/1s fixed_window", 2, 2*time.Second),
		windows("20/1s sliding_log", 1, 2*time.Second),
		windows("20/1s sliding_buckets parts 10", 1, 2100*time.Millisecond),
	}
	all[1].more = func(time.Duration) int64 { return steppedCount }
	for _, l := range all {
		l.took = NewSpans(10 * time.Millisecond)
	}
	return all
}

// take asks a store for a unit.
func (l *stepped) take(t testing.TB, store int, slowest *Longest) {
	begun, from := time.Now(), l.took.Now()
	d, err := l.bound[store].Decide(ctx, meter.OpTake, "a", 1)
	if err != nil {
		t.Errorf("%s: a call without an answer: %v", l.text, err)
		return
	}
	slowest.Note(time.Since(begun))
	if !d.Allowed {
		l.waited.Note(time.Duration(d.RetryAfter))
		return
	}
	l.allowed.Add(1)
	l.took.Note(from, l.took.Now(), 1)
}

// A jump is a step of the clock, and the moments between which it was made.
type jump struct {
	from, to int64
	by       time.Duration
}

// judge holds what passed, in every stretch, to what may.
func (l *stepped) judge(t testing.TB, jumps []jump) {
	highest := l.took.Judge(t, l.text, func(first, last int64, stretch time.Duration) int64 {
		most := l.most(stretch)
		for _, j := range jumps {
			if j.by > 0 && j.to >= first && j.from <= last {
				most += l.more(j.by)
			}
		}
		return most
	})
	waited := l.waited.Load()
	if waited > l.ahead {
		t.Errorf("%s: told to wait for %v, at most it is %v", l.text, waited, l.ahead)
	}
	if n := l.allowed.Load(); n < steppedCount || waited < l.ahead/10 {
		t.Errorf("%s: %d passed, the longest wait was %v: that was no trial", l.text, n, waited)
	}
	t.Logf("%s: %d passed, in the worst stretch %.3f of what may; the longest wait %v", l.text, l.allowed.Load(), highest, waited)
}

// TestClockStepServer steps the clock of a real server back and forth, by less
// than limits last and by a day, under load from two stores: calls are answered;
// steps back add nothing to what passes, in real time, and none keeps a key out
// for longer than two drains or windows; a step forth is time that passes. No call
// is on its way while the clock steps: a script goes by one time for what has
// expired, that of its start, and by another for what it writes, so Redis forgets
// within it what it has written after a step back.
func TestClockStepServer(t *testing.T) {
	need.Time(t)
	server, clock := redistest.StartClock(t)
	base := goroutines()
	all := steppeds()
	var stores []*redisstore.Store
	for range 2 {
		s := open(t, server.URL(), redisstore.Options{Prefix: "stepped", Timeout: patience})
		stores = append(stores, s)
		for _, l := range all {
			l.bound = append(l.bound, bind(t, s, l.text))
		}
	}
	var slowest Longest
	var onTheirWay sync.RWMutex                                        // by calls
	stop := Load(t, 4*len(all), 4*time.Millisecond, func(caller int) { // all ask for far more than passes
		onTheirWay.RLock()
		defer onTheirWay.RUnlock()
		all[caller%len(all)].take(t, caller/len(all)%len(stores), &slowest)
	})
	var jumps []jump
	for _, by := range []time.Duration{
		0, -500 * time.Millisecond, 200 * time.Millisecond, -time.Minute, 300 * time.Millisecond, -24 * time.Hour, 24 * time.Hour, time.Minute,
	} {
		onTheirWay.Lock()
		j := jump{from: all[0].took.Now(), by: by}
		clock.Step(t, by)
		j.to = all[0].took.Now()
		stepped := time.Now()
		jumps = append(jumps, j)
		onTheirWay.Unlock()
		time.Sleep(300 * time.Millisecond)
		for _, l := range all { // and no key is locked out
			if by < -time.Second {
				time.Sleep(time.Until(stepped.Add(l.ahead)))
			}
			before := l.allowed.Load()
			eventually(t, fmt.Sprintf("%s: nothing passes after a step of %v", l.text, by), func() bool { return l.allowed.Load() > before })
		}
	}
	stop()
	for _, l := range all {
		l.judge(t, jumps)
	}
	if took := slowest.Load(); took > patience/2 { // a busy machine's
		t.Errorf("a call took %v", took)
	}
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, base)
}

// TestClockStepExpiry steps the clock of a real server past the end of what is
// kept: until then it counts, and then it is gone, and the key as if never seen.
// After a step back nothing is gone that still counts.
func TestClockStepExpiry(t *testing.T) {
	server, clock := redistest.StartClock(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Modes: redisstore.Modes{DenialCache: -1}})
	for _, text := range []string{
		"10/1h", "7/1h", "10/1h leaky_queue", "10/1h token_bucket_interval", "10/1h fixed_window", "10 per day in Europe/Paris", "10/1h fixed_window from first",
		"10/1h sliding_log", "10/1h sliding_counter", "10/1h sliding_buckets",
	} {
		limit := bind(t, store, text)
		expect := func(when string, remaining int64, kept int) {
			t.Helper()
			d, err := limit.Decide(ctx, meter.OpPeek, "a", 1)
			if err != nil || d.Remaining > remaining || remaining == d.Limit && d.ResetAfter+d.Delay != 0 || (d.Remaining == d.Limit) != (kept == 0) {
				t.Errorf("%s, %s: %+v, %v", text, when, d, err)
			}
			if all := keys(t, c); len(all) != kept {
				t.Errorf("%s, %s: keys %q", text, when, all)
			}
		}
		whole := limit.Limits()[0].Capacity()
		d := take(t, limit, "a", whole)
		for d.ResetAfter < time.Minute { // a window that is about to end
			clock.Step(t, 2*time.Minute)
			d = take(t, limit, "a", whole)
		}
		clock.Step(t, d.ResetAfter/2)
		expect("halfway", whole-1, 1)
		clock.Step(t, d.ResetAfter/2-20*time.Second)
		expect("soon before the end", whole-1, 1)
		clock.Step(t, 20*time.Second+5*time.Millisecond)
		expect("at the end", whole, 0)
		if again := take(t, limit, "a", whole); !again.Allowed || again.Remaining != 0 {
			t.Errorf("%s, as if never seen: %+v", text, again)
		}
		clock.Step(t, -24*time.Hour)
		expect("a day before", 0, 1)
		do(t, c, "FLUSHALL")
	}
}

// TestClockStepForgotten steps the clock of a real server back over the end of a window
// that it has forgotten: the window begins again, once. A bucket, a log, a counter and
// parts admit no more than otherwise.
func TestClockStepForgotten(t *testing.T) {
	server, clock := redistest.StartClock(t)
	c := client(t, server.Addr)
	store := open(t, server.URL(), redisstore.Options{Modes: redisstore.Modes{DenialCache: -1}})
	for text, most := range map[string]int{
		"5/1h fixed_window": 15, "5/1h token_bucket_interval": 15, // 10, without the step
		"5/1h": 5, "5/1h sliding_log": 5, "5/1h sliding_counter": 5, "5/1h sliding_buckets": 5,
	} {
		limit := bind(t, store, text)
		end := int64(0) // of a window, in µs
		moveTo := func(before time.Duration) {
			now, err := do(t, c, "TIME").Int64Slice()
			if err != nil {
				t.Fatal(err)
			}
			at := now[0]*1_000_000 + now[1]
			if end == 0 {
				end = (at/3_600_000_000 + 2) * 3_600_000_000
			}
			clock.Step(t, time.Duration(end-at)*time.Microsecond-before)
		}
		passed := 0
		ask := func() {
			for take(t, limit, "a", 1).Allowed {
				passed++
			}
		}
		moveTo(20 * time.Second)
		ask()
		moveTo(-10 * time.Second)
		_, _ = limit.Decide(ctx, meter.OpPeek, "a", 1) // a state that has ended is gone once it is read
		moveTo(10 * time.Second)
		ask()
		moveTo(-20 * time.Second)
		ask()
		t.Logf("%s: %d passed, at most %d may", text, passed, most)
		if passed > most {
			t.Errorf("%s: %d passed about the end of a window, at most %d may", text, passed, most)
		}
	}
}

// TestClockStepLeases takes a node away with all in hand that may be, and steps
// the clock of a real server back by an hour: what the node had in hand ends two
// seconds later all the same, so that another has something to spend.
func TestClockStepLeases(t *testing.T) {
	need.Time(t)
	server, clock := redistest.StartClock(t)
	way := redistest.NewProxy(t, server.Addr)
	o := redisstore.Options{Prefix: "leases"}
	dead, lives := open(t, way.URL(), o), open(t, server.URL(), o)
	const text = "10000/1s burst 2000"
	limits := map[*redisstore.Store]stint.Bound{dead: bindIn(t, dead, redisstore.Lease, text), lives: bindIn(t, lives, redisstore.Lease, text)}
	leased := func(s *redisstore.Store) (is bool) {
		before, passed := calls(t, server), int64(0)
		for begun := time.Now(); time.Since(begun) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
			for range 12 {
				passed += take(t, limits[s], "k", 1).Taken
			}
		}
		return passed > 400 && calls(t, server)-before < passed/5
	}
	eventually(t, "at first, each decision is asked for", func() bool { return leased(dead) })
	way.Set(redistest.Fault{Refuse: true})
	way.Reset()
	clock.Step(t, -time.Hour)
	eventually(t, "an hour back, each decision is asked for", func() bool { return leased(lives) })
}

// TestModeClock steps the clock of a real server under stores in modes Lease and
// Async.
func TestModeClock(t *testing.T) {
	need.Time(t)
	base := goroutines()
	t.Run("one server", func(t *testing.T) { ModesClock(t) })
	nothingLeft(t, base)
}

// A stepper is a key in Redis and its twin, the arithmetic of package meter on a state
// of its own, on a clock that steps back and forth.
type stepper struct {
	testing.TB
	meter *meter.Meter
	state []uint64
	bound stint.Bound
	now   int64
	rnd   *rand.Rand
}

// take asks both, and reports whether something was charged.
func (s *stepper) take(op meter.Op, cost int64) bool {
	if room := s.meter.Room(s.state, s.now, cost); room > len(s.state) {
		more := make([]uint64, 2*room)
		s.meter.Move(more, s.state)
		s.state = more
	}
	var want stint.Decision
	if op == meter.OpPeek {
		ok := s.meter.Admits(s.state, s.now, cost)
		want.Set(s.meter, s.meter.Answer(s.state, s.now, cost, ok), ok, 0)
		if ok {
			want.Delay = s.meter.Delay(s.state, s.now, cost)
		}
	} else {
		a, ok := s.meter.Take(s.state, s.now, cost)
		want.Set(s.meter, a, ok, cost)
	}
	got, err := s.bound.Decide(ctx, op, "a", cost)
	if err != nil || got != micros(want) {
		s.Fatalf("%v: op %d of %d at %d:\n got %+v, %v\nwant %+v", s.bound.Limits(), op, cost, s.now, got, err, micros(want))
	}
	return got.Taken > 0
}
