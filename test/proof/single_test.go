package proof_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/test/proof/model"
	"github.com/stint-dev/stint/test/proof/oracle"
	"pgregory.net/rapid"
)

// TestEnvelopeSingleReal races takes from a limiter without keys on its real
// clock, at periods down to a millisecond, with far more goroutines and threads
// than cores, so that many of them stand still in the middle of a call for
// longer than the limit takes to drain.
func TestEnvelopeSingleReal(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	for _, text := range []string{
		"1000/s burst 3", // without a lock
		"5000/s burst 20",
		"1000/s burst 3 leaky_queue",
		"30/s burst 1", // with one
		"333/s burst 3",
		"7/1ms",
		"10/1ms token_bucket_interval",
		"10/1ms fixed_window",
		"10/1ms sliding_log",
		"100/100ms sliding_log",
		"10/1ms sliding_counter",
		"10/1ms sliding_buckets parts 10",
	} {
		for _, goroutines := range []int{2, 64, 1000} {
			t.Run(fmt.Sprint(text, " by ", goroutines), func(t *testing.T) {
				hammer(t, text, goroutines, time.Duration(scaled(60, 150, 3000))*time.Millisecond)
			})
		}
	}
}

// hammer asks one Single from many goroutines for some time, and judges what
// passed.
func hammer(t *testing.T, text string, goroutines int, length time.Duration) {
	l := parse(t, text)
	s, err := memstore.NewSingle(l, memstore.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var events []oracle.Event
	asked, moment := make(map[int64]bool), min(int64(l.Period()), int64(time.Millisecond)) // the moments in which somebody asked
	var wg sync.WaitGroup
	clock := real{time.Now()}
	// A Single of windows goes by its own reading of the time of day.
	slop := int64(20 * time.Microsecond)
	short := l.Algorithm() != meter.LeakyQueue // the short answer has no delay
	for i := range goroutines {
		wg.Go(func() {
			own, moments := hammered(s, clock, uint64(i), length, slop, short, moment)
			mu.Lock()
			defer mu.Unlock()
			events = append(events, own...)
			for _, m := range moments {
				asked[m] = true
			}
		})
	}
	wg.Wait()
	// Whatever was admitted keeps to the envelope, and so does each choice of
	// it: calls that took long say little about when.
	for _, longest := range []time.Duration{time.Hour, time.Millisecond, 50 * time.Microsecond} {
		var some []oracle.Event
		for _, e := range events {
			if e.End-e.T <= int64(longest) {
				some = append(some, e)
			}
		}
		if v := oracle.Check(spec(l), some, 0); len(v) > 0 {
			t.Errorf("calls of up to %v: %d violations in %d that passed, first: %v", longest, len(v), len(some), v[0])
		}
	}
	// There is more demand than budget, by far, whenever the machine lets anybody ask.
	if least := max(int64(len(asked)-1)*moment*l.Count()/int64(l.Period())/10, 1); int64(len(events)) < least {
		t.Errorf("%d passed in %d moments, at least %d should", len(events), len(asked), least)
	}
}

// hammered returns what passed of one goroutine's takes, and the moments in which
// it asked.
func hammered(s *memstore.Single, clock real, seed uint64, length time.Duration, slop int64, short bool, moment int64) (passed []oracle.Event, asked []int64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for end := clock.now() + int64(length); ; {
		from := clock.now()
		if from >= end && len(asked) > 0 {
			return passed, asked
		}
		if m := from / moment; len(asked) == 0 || asked[len(asked)-1] != m {
			asked = append(asked, m)
		}
		ok, delay := false, int64(0)
		if short && rng.IntN(2) == 0 {
			ok = s.Allow()
		} else if d, err := s.Take(1); err == nil {
			ok, delay = d.Allowed, int64(d.Delay)
		}
		if ok {
			passed = append(passed, oracle.Event{T: from - slop, End: clock.now() + slop, Cost: 1, Allowed: true, Delay: delay})
		}
		switch rng.IntN(8) {
		case 0:
			runtime.Gosched()
		case 1:
			time.Sleep(time.Duration(rng.Int64N(int64(time.Millisecond))))
		}
	}
}

// TestDifferentialSingle changes the limit of a Single again and again, mostly to one of
// the same identity, and wants what the model says of one key.
func TestDifferentialSingle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &differential{t: t, tick: 1, model: model.New()}
		d.now = rapid.SampledFrom([]int64{0, 1e9, 1763700000123456789}).Draw(t, "start")
		now, l := func() int64 { return d.now }, d.anyLimit().WithName("l")
		one, err := memstore.NewSingle(l, memstore.SingleOptions{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		d.limits = []stint.Limit{l}
		column := &column{name: "single", quantum: 1}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			d.wait()
			cost, of := d.cost(), []model.Layer{{Name: "l", Spec: spec(d.limits[0])}}
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0, 1, 2:
				if alike := d.alike(d.limits[0]); alike.Validate() == nil {
					d.limits[0] = alike
				} else {
					d.limits[0] = d.anyLimit().WithName("l")
				}
				if err := one.SetLimit(d.limits[0]); err != nil {
					t.Fatal(err)
				}
			case 3:
				got, err := one.Peek(cost)
				d.same(column, fmt.Sprint("peek ", cost), got, err, d.model.Peek(d.now, of, cost))
			case 4:
				if got, want := one.AllowN(cost), d.model.Take(d.now, of, cost); got != want.Allowed {
					t.Fatalf("at %d, allow %d under %v: %t", d.now, cost, d.limits[0], got)
				}
			default:
				got, err := one.Take(cost)
				d.same(column, fmt.Sprint("take ", cost), got, err, d.model.Take(d.now, of, cost))
			}
		}
	})
}
