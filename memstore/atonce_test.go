package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// atOnce is what Wait asks of a store where it must not wait for a start.
type atOnce interface {
	TakeAtOnce(key string, cost int64) (passes, known bool, err error)
}

// TestTakeAtOnce holds a take at once to a look and a take, under every algorithm:
// it passes for the same requests, and leaves the same state, also while reservations
// are open and when limits change.
func TestTakeAtOnce(t *testing.T) {
	for _, text := range []string{
		"10/1s", "7/1m burst 20", "10/1s leaky_queue burst 3", "5/1s leaky_queue burst 0", "10/1s token_bucket_interval",
		"10/1s fixed_window", "10/1s fixed_window count_denied", "10 per day in Europe/Paris", "10/1s sliding_log", "10/1s sliding_log count_denied",
		"10/1s sliding_counter count_denied", "10/1s sliding_buckets parts 5", "10/1s sliding_buckets count_denied", "10/1s leaky_queue; 100/1m",
	} {
		t.Run(text, func(t *testing.T) {
			decided, passed := 0, 0
			for seed := range uint64(40) {
				rng := rand.New(rand.NewPCG(seed, 7))
				var c clock
				c.advance(1000 * time.Hour)
				both := newPair(t, &c, text)
				for range 150 {
					known, passes := both.step(t, rng, &c)
					if known {
						decided++
					}
					if passes {
						passed++
					}
				}
			}
			if several := text == "10/1s leaky_queue; 100/1m"; decided < 500 && !several || passed < 500 {
				t.Errorf("%d decided at once, %d passed: little was compared", decided, passed)
			}
		})
	}
}

// A pair are two stores in which the same is done, one at once.
type pair struct {
	stores [2]*memstore.Store
	bound  [2]stint.Bound
	other  [2]stint.Bound // another form: a store forgets those that are garbage
	open   [2][]stint.ReservationID
	clock  *clock
}

func newPair(t *testing.T, c *clock, text string) *pair {
	w := &pair{clock: c}
	var limits []stint.Limit
	for one := range strings.SplitSeq(text, "; ") {
		limits = append(limits, limit(t, one).WithName(fmt.Sprint("limit", len(limits))))
	}
	for i := range w.stores {
		w.stores[i] = memstore.New(memstore.Options{Now: c.now})
		var err error
		if w.bound[i], err = w.stores[i].Bind("api", limits...); err != nil {
			t.Fatal(err)
		}
		if w.other[i], err = w.stores[i].Bind("api", limit(t, "20/1s").WithName("limit0")); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// step does something to both, and compares.
func (w *pair) step(t *testing.T, rng *rand.Rand, c *clock) (known, passes bool) {
	t.Helper()
	c.advance(time.Duration(rng.Int64N(int64(150 * time.Millisecond))))
	key, cost := fmt.Sprint("key", rng.IntN(4)), 1+rng.Int64N(4)/3
	if rng.IntN(50) == 0 {
		cost = 1000
	}
	switch rng.IntN(12) {
	case 0:
		w.reserve(t, key, cost)
	case 1:
		w.cancel(t)
	case 2:
		w.otherForm(t, key)
	case 3:
		w.each(t, func(i int) any { return w.decide(t, i, meter.OpTake, key, cost) })
	default:
		took := [2]bool{}
		took[0], known = w.atOnce(t, 0, key, cost)
		took[1] = w.lookAndTake(t, 1, key, cost)
		if passes = took[0]; took[0] != took[1] {
			t.Fatalf("at once: %v; a look and a take: %v", took[0], took[1])
		}
	}
	w.each(t, func(i int) any { return w.decide(t, i, meter.OpPeek, key, 1) })
	return known, passes
}

func (w *pair) atOnce(t *testing.T, i int, key string, cost int64) (took, known bool) {
	t.Helper()
	took, known, err := w.bound[i].(atOnce).TakeAtOnce(key, cost)
	if err != nil {
		t.Fatal(err)
	}
	if !known {
		return w.lookAndTake(t, i, key, cost), false
	}
	return took, true
}

func (w *pair) lookAndTake(t *testing.T, i int, key string, cost int64) bool {
	t.Helper()
	if d := w.decide(t, i, meter.OpPeek, key, cost); !d.Allowed || d.Delay > 0 {
		return false
	}
	return w.decide(t, i, meter.OpTake, key, cost).Allowed
}

func (w *pair) decide(t *testing.T, i int, op meter.Op, key string, cost int64) stint.Decision {
	t.Helper()
	d, err := w.bound[i].Decide(ctx, op, key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *pair) reserve(t *testing.T, key string, cost int64) {
	w.each(t, func(i int) any {
		d, id, err := w.stores[i].Reserve(ctx, []stint.Layer{{Bound: w.bound[i], Key: key}}, cost, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if id != "" {
			w.open[i] = append(w.open[i], id)
		}
		return d
	})
}

func (w *pair) cancel(t *testing.T) {
	w.each(t, func(i int) any {
		if len(w.open[i]) == 0 {
			return nil
		}
		id := w.open[i][0]
		w.open[i] = slices.Delete(w.open[i], 0, 1)
		d, err := w.stores[i].Settle(ctx, id, 0)
		return fmt.Sprint(d, err)
	})
}

// otherForm takes under another form of the limits.
func (w *pair) otherForm(t *testing.T, key string) {
	w.each(t, func(i int) any {
		d, err := w.other[i].Decide(ctx, meter.OpTake, key, 1)
		return fmt.Sprint(d, err)
	})
}

func (w *pair) each(t *testing.T, do func(i int) any) {
	t.Helper()
	if a, b := do(0), do(1); a != b {
		t.Fatalf("the twin that is asked at once differs:\n%+v\n%+v", a, b)
	}
}

// BenchmarkWaitBesideTake times a Wait that passes at once beside a Take, in turns
// of some thousand calls each: take-ns/op and wait-ns/op, medians of the turns, and
// their ratio.
func BenchmarkWaitBesideTake(b *testing.B) {
	for _, text := range []string{
		"1000000000/1s", "1000000000/1s token_bucket_interval", "1000000000/1s leaky_queue", "1000000000/1s fixed_window", "1000000000/1s sliding_counter",
		"1000000000/1s sliding_buckets", "1000/1us sliding_log", "1000000000/1s fixed_window count_denied",
	} {
		b.Run(text, func(b *testing.B) {
			const turn = 2000
			l := limiter(b, memstore.New(memstore.Options{}), text)
			allow(b, l, "a")
			var takes, waits []float64
			for range b.N {
				takes = append(takes, perCall(turn, func() { _, _ = l.Take(ctx, "a", 1) }))
				waits = append(waits, perCall(turn, func() { _ = l.Wait(ctx, "a", 1) }))
			}
			slices.Sort(takes)
			slices.Sort(waits)
			take, wait := takes[len(takes)/2], waits[len(waits)/2]
			b.ReportMetric(take, "take-ns/op")
			b.ReportMetric(wait, "wait-ns/op")
			b.ReportMetric(wait/take, "ratio")
		})
	}
}

// perCall returns the time of one of n calls, in ns.
func perCall(n int, do func()) float64 {
	begin := time.Now()
	for range n {
		do()
	}
	return float64(time.Since(begin)) / float64(n)
}
