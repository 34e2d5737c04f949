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

// TestTakeTurn holds a take of one who has not waited to a look and a take, under every
// algorithm: it passes for the same requests, and leaves the same state, also while
// reservations are open and when limits change.
func TestTakeTurn(t *testing.T) {
	for _, text := range []string{
		"10/1s", "7/1m burst 20", "10/1s leaky_queue burst 3", "5/1s leaky_queue burst 0", "10/1s token_bucket_interval",
		"10/1s fixed_window", "10/1s fixed_window count_denied", "10/1s fixed_window from first", "10 per day in Europe/Paris", "10/1s sliding_log", "10/1s sliding_log count_denied",
		"10/1s sliding_counter count_denied", "10/1s sliding_buckets parts 5", "10/1s sliding_buckets count_denied", "10/1s leaky_queue; 100/1m",
	} {
		t.Run(text, func(t *testing.T) {
			passed := 0
			for seed := range uint64(40) {
				rng := rand.New(rand.NewPCG(seed, 7))
				var c clock
				c.advance(1000 * time.Hour)
				both := newPair(t, &c, text)
				for range 150 {
					if both.step(t, rng, &c) {
						passed++
					}
				}
			}
			if passed < 500 {
				t.Errorf("%d passed: little was compared", passed)
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
	counts bool // what it denies
}

func newPair(t *testing.T, c *clock, text string) *pair {
	w := &pair{clock: c, counts: strings.Contains(text, "count_denied")}
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
func (w *pair) step(t *testing.T, rng *rand.Rand, c *clock) (passes bool) {
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
		took[0] = w.atOnce(t, 0, key, cost)
		took[1] = w.lookAndTake(t, 1, key, cost)
		if passes = took[0]; took[0] != took[1] {
			t.Fatalf("at once: %v; a look and a take: %v", took[0], took[1])
		}
	}
	w.each(t, func(i int) any { return w.decide(t, i, meter.OpPeek, key, 1) })
	return passes
}

func (w *pair) atOnce(t *testing.T, i int, key string, cost int64) bool {
	t.Helper()
	d, _, err := w.stores[i].TakeTurn(ctx, []stint.Layer{{Bound: w.bound[i], Key: key}}, cost, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d.Allowed
}

func (w *pair) lookAndTake(t *testing.T, i int, key string, cost int64) bool {
	t.Helper()
	if d := w.decide(t, i, meter.OpPeek, key, cost); !d.Allowed || d.Delay > 0 {
		if !w.counts { // what can never pass puts the numbers of the limit in force, and does nothing else
			w.decide(t, i, meter.OpTake, key, 1000)
		}
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
