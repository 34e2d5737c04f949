package proof_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/test/proof/crowd"
	"github.com/stint-dev/stint/test/proof/model"
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
				limit, ask := bySingle(t, text)
				crowd.Run(t, limit, goroutines, time.Duration(scaled(60, 150, 3000))*time.Millisecond, ask)
			})
		}
	}
}

// bySingle asks in both ways. What a queue lets in is a bucket's, of one place more.
func bySingle(t *testing.T, text string) (limit model.Spec, ask crowd.Take) {
	l := parse(t, text)
	s, err := memstore.NewSingle(l, memstore.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if limit = spec(l); l.Algorithm().Queues() {
		limit.Kind, limit.Burst = model.GCRA, limit.Burst+1
	}
	var n atomic.Int64
	return limit, func(string) (bool, error) {
		if n.Add(1)%2 == 0 {
			return s.Allow(), nil
		}
		d, err := s.Take(1)
		return d.Allowed, err
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
