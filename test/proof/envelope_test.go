package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// Every kind, for races and clock faults; the periods are one second, but for
// the calendar's.
var everyKind = []string{
	"50/s burst 20", // a state of one word
	"7/s burst 5",   // of two
	"every 100ms",
	"50/s burst 20 debt 70",
	"20/s token_bucket_interval burst 50",
	"30/s leaky_queue burst 10",
	"7/s leaky_queue burst 0",
	"20/s fixed_window",
	"20/s fixed_window count_denied",
	"20/s fixed_window from first",
	"200/day in Europe/Paris",
	"20/s sliding_log",
	"20/s sliding_log count_denied",
	"20/s sliding_counter",
	"20/s sliding_counter relaxed",
	"20/s sliding_counter count_denied",
	"20/s sliding_buckets parts 7",
	"20/s sliding_buckets parts 4 count_denied",
}

// brief reports whether the short form of the tests is enough: it was asked for, or
// all is several times as slow. The planted bugs of mutants are found by it.
func brief() bool { return (testing.Short() || race.On) && !soaking() }

// scaled returns how much work a test does: less in the short form, more in a soak.
func scaled(short, normal, soak int) int {
	switch {
	case soaking():
		return soak
	case brief():
		return short
	}
	return normal
}

func parse(t testing.TB, text string) stint.Limit {
	t.Helper()
	return made.Limit(t, text)
}

// A stopwatch is a clock that callers may read beside the store: what the store
// read between two readings of a caller lies between them.
type stopwatch interface {
	now() int64
	// pause lets some time pass.
	pause(rng *rand.Rand)
}

// virtual is a clock on which every reading takes a nanosecond, so that no two
// are equal and the order of calls that did not overlap is known.
type virtual struct {
	at  atomic.Int64
	gap int64 // the mean of a pause, ns
}

func (v *virtual) now() int64 { return v.at.Add(1) }

func (v *virtual) pause(rng *rand.Rand) {
	v.at.Add(rng.Int64N(2*v.gap + 1))
	if rng.IntN(4) == 0 {
		runtime.Gosched()
	}
}

// real is the time of day, carried on by the monotonic clock.
type real struct{ start time.Time }

func (r real) now() int64 { return r.start.UnixNano() + int64(time.Since(r.start)) }

func (r real) pause(rng *rand.Rand) {
	if rng.IntN(40) == 0 {
		time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
}

// A contest is a store that several goroutines take from.
type contest struct {
	t      *testing.T
	clock  stopwatch
	slop   int64 // ns by which the caller's clock may be off the store's
	tick   int64 // ns, of a store whose waits are in whole ticks
	store  stint.Store
	limits []stint.Limit
	mu     sync.Mutex
	seen   [][]oracle.Event // by limit
}

const racers = 4

func newRace(t *testing.T, clock stopwatch, o memstore.Options, texts ...string) *contest {
	return newContest(t, clock, memstore.New(o), texts...)
}

func newContest(t *testing.T, clock stopwatch, store stint.Store, texts ...string) *contest {
	r := &contest{t: t, clock: clock, store: store, seen: make([][]oracle.Event, len(texts))}
	for i, text := range texts {
		r.limits = append(r.limits, parse(t, text).WithName(fmt.Sprint(i, " ", text)))
	}
	return r
}

// run lets each racer make the given number of requests, and judges what they saw.
func (r *contest) run(requests int, request func(rng *rand.Rand) []seen) {
	r.race(racers, requests, 0, request)
	r.judge()
}

// race lets some make requests.
func (r *contest) race(racers, requests int, seed uint64, request func(rng *rand.Rand) []seen) {
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed<<8|uint64(i), uint64(requests)))
			own := make([][]oracle.Event, len(r.limits))
			for range requests {
				r.clock.pause(rng)
				for _, s := range request(rng) {
					own[s.limit] = append(own[s.limit], s.event)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for limit, events := range own {
				r.seen[limit] = append(r.seen[limit], events...)
			}
		})
	}
	wg.Wait()
}

func (r *contest) judge() {
	for i, events := range r.seen {
		if v := oracle.Judge(spec(r.limits[i]), events, 0); len(v) > 0 {
			r.t.Errorf("%v: %d violations in %d decisions, first: %v", r.limits[i], len(v), len(events), v[0])
		}
	}
}

// contested wants that some of every limit's decisions passed and some did not:
// else the contest proves nothing.
func (r *contest) contested() {
	for i, events := range r.seen {
		allowed := 0
		for _, e := range events {
			if e.Allowed {
				allowed++
			}
		}
		if allowed == 0 || allowed == len(events) {
			r.t.Errorf("%v: %d of %d passed", r.limits[i], allowed, len(events))
		}
	}
}

// seen is what one limit decided.
type seen struct {
	limit int
	event oracle.Event
}

// took notes when a decision was made around, and turns it into events, one
// for each layer.
func (r *contest) took(keys []string, limits []int, cost int64, decide func() (stint.Decision, error)) []seen {
	from := r.clock.now()
	d, err := decide()
	to := r.clock.now()
	if err != nil {
		r.t.Error(err)
		return nil
	}
	if d.Allowed {
		cost = d.Taken
	}
	var all []seen
	for i, limit := range limits {
		all = append(all, seen{limit, oracle.Event{
			T: from - r.slop, End: to + r.slop, Key: keys[i], Cost: cost, Allowed: d.Allowed, Delay: int64(d.Delay),
			Elsewhere: !d.Allowed && !d.Denied.Has(i), Quantum: r.tick,
		}})
	}
	return all
}

// one makes requests to a single limit in every way there is.
func (r *contest) one() func(rng *rand.Rand) []seen {
	limiter := made.Limiter(r.t, r.store, r.limits[0].Name(), r.limits[0])
	ctx := context.Background()
	return func(rng *rand.Rand) []seen {
		key, cost := []string{"a", "a", "b", "c"}[rng.IntN(4)], 1+rng.Int64N(3)
		on := []string{key}
		what := rng.IntN(6)
		if r.limits[0].Algorithm() == meter.LeakyQueue {
			what = 2 // the short answer has no delay
		}
		switch what {
		case 0:
			return r.took(on, []int{0}, 1, func() (d stint.Decision, err error) {
				d.Allowed, err = limiter.Allow(ctx, key)
				d.Taken, d.Denied = 1, 1
				return d, err
			})
		case 1:
			return r.took(on, []int{0}, 1, func() (stint.Decision, error) { return limiter.TakeUpTo(ctx, key, cost) })
		case 2:
			d, err := limiter.Peek(ctx, key, cost)
			if err != nil || d.Taken != 0 {
				r.t.Errorf("peek: %+v, %v", d, err)
			}
		}
		return r.took(on, []int{0}, cost, func() (stint.Decision, error) { return limiter.Take(ctx, key, cost) })
	}
}

// gap is the pause at which a racer asks for some three times what three keys
// may have.
func gap(l stint.Limit) int64 { return max(int64(l.Period())/l.Count()*racers/15, 1) }

// TestEnvelopeVirtual races takes on a clock that only the racers move.
func TestEnvelopeVirtual(t *testing.T) {
	for _, text := range everyKind {
		t.Run(text, func(t *testing.T) {
			clock := &virtual{gap: gap(parse(t, text))}
			clock.at.Store(1_763_675_900_000_000_000) // 100 s before midnight in Paris, UTC + 1
			r := newRace(t, clock, memstore.Options{Now: clock.now}, text)
			r.run(scaled(300, 700, 20_000), r.one())
			r.contested()
		})
	}
}

// TestEnvelopeReal races takes on the store's own clock, in windows of 50 ms.
// The store's clock was read a moment apart from the test's.
func TestEnvelopeReal(t *testing.T) {
	for _, text := range everyKind {
		l := parse(t, text)
		if unit, _ := l.Calendar(); unit != "" {
			continue
		}
		if first := l.FromFirst(); l.Count() > 1 {
			if l = stint.New(l.Count(), 50*time.Millisecond).WithAlgorithm(l.Algorithm()); first {
				l = l.WithFromFirst()
			}
		}
		t.Run(l.String(), func(t *testing.T) {
			r := newRace(t, real{time.Now()}, memstore.Options{}, l.String())
			r.slop = int64(time.Millisecond)
			r.run(scaled(300, 800, 20_000), r.one())
			r.contested()
		})
	}
}

// TestEnvelopeLayers races requests that several limits must pass, on one key
// or on several: every limit must keep its own envelope, and every denial must
// be justified by a layer that says it denied.
func TestEnvelopeLayers(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for range scaled(4, 8, 100) {
		var texts []string
		for range 2 + rng.IntN(2) {
			texts = append(texts, everyKind[rng.IntN(len(everyKind))])
		}
		t.Run(fmt.Sprint(texts), func(t *testing.T) {
			clock := &virtual{gap: gap(parse(t, texts[0]))}
			clock.at.Store(1_763_675_900_000_000_000)
			r := newRace(t, clock, memstore.Options{Now: clock.now, MaxKeys: 1 << 16}, texts...)
			r.run(scaled(200, 500, 10_000), r.layered())
		})
	}
}

// layered makes requests to all limits on one key, and to some on several.
func (r *contest) layered() func(rng *rand.Rand) []seen {
	all := made.Bound(r.t, r.store, "together", r.limits...)
	var each []stint.Bound
	var every []int
	for i := range r.limits {
		b, err := fallback.Apart(all, i, r.store.Bind)
		if err != nil {
			r.t.Fatal(err)
		}
		each, every = append(each, b), append(every, i)
	}
	ctx := context.Background()
	return func(rng *rand.Rand) []seen {
		cost := 1 + rng.Int64N(3)
		if rng.IntN(2) == 0 {
			key := fmt.Sprint("k", rng.IntN(3))
			return r.took(slices.Repeat([]string{key}, len(every)), every, cost, func() (stint.Decision, error) {
				return all.Decide(ctx, meter.OpTake, key, cost)
			})
		}
		var keys []string
		var layers []stint.Layer
		order := rng.Perm(len(each))
		for _, i := range order {
			keys = append(keys, fmt.Sprint("k", rng.IntN(3)))
			layers = append(layers, stint.Layer{Bound: each[i], Key: keys[len(keys)-1]})
		}
		return r.took(keys, order, cost, func() (stint.Decision, error) {
			return r.store.Decide(ctx, meter.OpTake, layers, cost)
		})
	}
}

// TestEnvelopeSingle counts what racers get from a limiter without keys: as
// much as there is, and no more, with and without a lock.
func TestEnvelopeSingle(t *testing.T) {
	const all = 20_000
	for _, text := range []string{"20_000/10000h", "20_001/10000h burst 20_000", "20_000/10000h sliding_buckets", "20_000/10000h leaky_queue burst 19_999"} {
		l := parse(t, text)
		s, err := memstore.NewSingle(l, memstore.SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var passed atomic.Int64
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				for n := range all {
					ok := false
					if (n+i)%2 == 0 {
						ok = s.Allow()
					} else {
						d, err := s.Take(1)
						ok = err == nil && d.Allowed
					}
					if ok {
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := passed.Load(); n != all {
			t.Errorf("%s: %d passed of %d there are", text, n, all)
		}
	}
}
