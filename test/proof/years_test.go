package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/test/proof/model"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// soaking reports whether the long form of the tests was asked for.
func soaking() bool { return os.Getenv("STINT_SOAK") == "1" }

// What the years are made of: every kind, from seconds to months.
var yearly = []string{
	"10/s burst 20",
	"7 per hour burst 30",
	"every 90s",
	"100 per day token_bucket_interval burst 250",
	"12 per minute leaky_queue burst 30",
	"60 per hour fixed_window",
	"30 per hour fixed_window count_denied",
	"1_000 per day in America/Sao_Paulo",
	"5_000 per month in Europe/Paris",
	"50 per hour sliding_log",
	"20 per minute sliding_log count_denied",
	"100 per day sliding_counter",
	"100 per minute sliding_counter relaxed",
	"50 per hour sliding_buckets parts 12",
	"1_000 per week sliding_buckets",
}

const (
	established = 24  // keys that come first in every era, and keep coming
	newcomers   = 400 // that flood in after them
	roomForKeys = 48  // MaxKeys of the store
	longestIdle = 60 * 24 * time.Hour
	eraSteps    = 1500
	lastYear    = 1 << 62 // 2116: times are int64 nanoseconds
)

// TestYears runs every kind through years of bursts, floods of newcomers, edges
// of windows and idle stretches, in a store that is far too small for all keys.
// No key, established or newcomer, may get more than the envelope; established
// keys must be answered exactly as by the bare arithmetic that knows no bound,
// their denials must be justified, and some of them must be answered as the
// model does.
func TestYears(t *testing.T) {
	var all struct {
		years     float64
		decisions int
	}
	start, enough := time.Now(), scaled(12_000, 200_000, 5_000_000)
	for i, text := range yearly {
		t.Run(text, func(t *testing.T) {
			for done, seed := 0, uint64(i); done < enough; seed += 100 {
				y := newYears(t, text, seed)
				for done+y.decisions < enough && y.now < lastYear {
					y.era()
				}
				y.judge()
				done += y.decisions
				all.years += float64(y.now-y.begun) / float64(365*24*time.Hour)
			}
			all.decisions += enough
		})
	}
	t.Logf("%.1f years of virtual time, %d decisions, in %v",
		all.years, all.decisions, time.Since(start).Round(time.Millisecond))
}

// years is one limit on its way through time.
type years struct {
	t     *testing.T
	rng   *rand.Rand
	limit stint.Limit
	spec  model.Spec
	meter *meter.Meter

	store      *memstore.Store
	bound      stint.Bound
	begun, now int64
	resets     int64 // by when every key is as if never seen
	decisions  int
	eras       int
	keys       [established]regular
	model      *model.Model
	events     []oracle.Event // of everybody
	regulars   []oracle.Event // of sampled established keys, each era under a key of its own
}

// regular is an established key: its twin, without a bound, decides beside it
// until the moment at which it is as if never seen, and may lose its place.
type regular struct {
	twin bare
	live bool
	ends int64
}

func newYears(t *testing.T, text string, seed uint64) *years {
	l := parse(t, text)
	m, err := l.Meter()
	if err != nil {
		t.Fatal(err)
	}
	y := &years{
		t: t, rng: rand.New(rand.NewPCG(seed, 2025)), limit: l, spec: spec(l), meter: m,
		now: time.Date(2023, 12, 31, 22, 0, 0, 0, time.UTC).UnixNano(), model: model.New(),
	}
	y.begun = y.now
	y.store = memstore.New(memstore.Options{MaxKeys: roomForKeys, Now: func() int64 { return y.now }})
	if y.bound, err = y.store.Bind(l.Name(), l); err != nil {
		t.Fatal(err)
	}
	return y
}

// era is an idle stretch, the return of the established keys, and a crowd.
func (y *years) era() {
	y.judgeEra()
	y.eras++
	y.now = max(y.now, y.resets) + y.rng.Int64N(int64(longestIdle))
	y.toEdge()
	for i := range y.keys {
		y.keys[i] = regular{twin: newBare(y.meter), live: true}
		y.regular(i)
	}
	for range eraSteps {
		y.wait()
		switch n := y.rng.IntN(8); {
		case n < 4:
			y.regular(y.rng.IntN(established))
		case n < 7:
			y.newcomer(y.rng.IntN(newcomers))
		default: // a burst of one newcomer
			for range y.rng.IntN(6) {
				y.newcomer(y.eras % newcomers)
			}
		}
	}
}

// wait lets time pass, mostly so little that every established key asks for
// about twice what it may have.
func (y *years) wait() {
	unit := max(int64(y.limit.Period())/y.limit.Count(), 1)
	pace := unit / established
	if y.limit.Capacity() == 1 {
		pace /= 4 // a key is live for one unit only
	}
	switch n := y.rng.IntN(400); {
	case n == 0:
		y.now += y.rng.Int64N(int64(y.limit.Period()) / 2)
	case n < 4:
		y.toEdge()
	case n < 10:
		y.now += unit
	default:
		y.now += y.rng.Int64N(pace + 1)
	}
}

// toEdge goes to the moment before, at or after the end of the window, if that
// is not far.
func (y *years) toEdge() {
	window := y.spec
	window.Kind = model.Fixed
	_, end, _ := model.Window(window, y.now)
	if at := end.Int64() + y.rng.Int64N(3) - 1; at > y.now && at-y.now < int64(y.limit.Period())/3 {
		y.now = at
	}
}

// cost is mostly one; now and then all there is, or more.
func (y *years) cost() int64 {
	switch most := y.limit.Capacity(); y.rng.IntN(40) {
	case 0:
		return most
	case 1:
		return most + 1
	case 2, 3, 4:
		return 1 + y.rng.Int64N(most)
	}
	return 1 + y.rng.Int64N(2)
}

func (y *years) take(key string, cost int64) stint.Decision {
	d, err := y.bound.Decide(context.Background(), meter.OpTake, key, cost)
	if err != nil {
		y.t.Fatal(err)
	}
	y.decisions++
	y.resets = max(y.resets, y.now+int64(d.ResetAfter))
	y.events = append(y.events, y.event(key, cost, d))
	return d
}

func (y *years) event(key string, cost int64, d stint.Decision) oracle.Event {
	return oracle.Event{T: y.now, Key: key, Cost: cost, Allowed: d.Allowed, Delay: int64(d.Delay)}
}

// newcomer takes for a key that may have to share a cell.
func (y *years) newcomer(i int) { y.take(fmt.Sprint("new", i), y.cost()) }

// regular takes for an established key, and for its twin. The first of them is
// held to the model too, a few of them to the oracle.
func (y *years) regular(i int) {
	r := &y.keys[i]
	key, cost := fmt.Sprint("old", i), y.cost()
	got := y.take(key, cost)
	if y.now >= r.ends && r.ends > 0 {
		r.live = false // it may have lost its place a moment ago
	}
	if !r.live {
		return
	}
	want := r.twin.take(y.now, cost)
	if got != want {
		y.t.Fatalf("at %d, %s, cost %d:\n  in the store %+v\n without bound %+v", y.now, key, cost, got, want)
	}
	r.ends = y.now + int64(want.ResetAfter)
	name := fmt.Sprint(key, " in era ", y.eras)
	switch {
	case i == 0:
		a := y.model.Take(y.now, []model.Layer{{Name: "limit", Spec: y.spec, Key: name}}, cost)
		if err := agree(got, a); err != nil {
			y.t.Fatalf("at %d, %s, cost %d: %v", y.now, key, cost, err)
		}
	case i <= 3:
		y.regulars = append(y.regulars, y.event(name, cost, got))
	}
}

// agree compares an engine's answer with the model's.
func agree(got stint.Decision, want model.Answer) error {
	retry := stint.Never
	if want.RetryAfter != nil {
		retry = stint.Wait(held63(want.RetryAfter))
	}
	if got.Allowed != want.Allowed || got.Remaining != want.Remaining || got.RetryAfter != retry ||
		int64(got.ResetAfter) != held63(want.ResetAfter) || int64(got.Delay) != held63(want.Delay) {
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	return nil
}

// judgeEra holds everybody to the envelope. Between eras all keys are as if
// never seen, so each may be judged by itself.
func (y *years) judgeEra() {
	if v := oracle.Check(y.spec, y.events, 0); len(v) > 0 {
		y.t.Fatalf("%d violations, first: %v", len(v), v[0])
	}
	if v := oracle.Justified(y.spec, y.regulars); len(v) > 0 {
		y.t.Fatalf("%d denials for nothing, first: %v", len(v), v[0])
	}
	y.events, y.regulars = y.events[:0], y.regulars[:0]
}

// judge judges what is left and wants the store to have been in need.
func (y *years) judge() {
	y.judgeEra()
	st := y.store.Stats()
	if st.Keys > st.MaxKeys {
		y.t.Errorf("%d keys, more than %d", st.Keys, st.MaxKeys)
	}
	if y.eras > 2 && (st.Evicted == 0 || st.Overflowed == 0) {
		y.t.Errorf("%d evicted, %d on cells: the bound was never felt", st.Evicted, st.Overflowed)
	}
}

// bare is the state of one key, held by the test: the arithmetic without a
// store.
type bare struct {
	meter *meter.Meter
	words []uint64
}

func newBare(m *meter.Meter) bare { return bare{m, make([]uint64, m.Words())} }

func (b *bare) take(now, cost int64) (d stint.Decision) {
	if need := b.meter.Room(b.words, now, cost); need > len(b.words) {
		words := make([]uint64, 2*need)
		b.meter.Move(words, b.words)
		b.words = words
	}
	a, ok := b.meter.Take(b.words, now, cost)
	d.Set(b.meter, a, ok, cost)
	return d
}
