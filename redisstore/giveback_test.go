package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A marked bucket is what has been charged to a bucket, and not been given back.
type marked struct {
	step, div int64 // of a unit, in 1/div µs
	events    []markedEvent
}

// A markedEvent is units that were charged, or refunded.
type markedEvent struct {
	at    int64 // ns
	units int64
}

// backlog returns the µs until the bucket is as if never seen, by the definition.
func (h *marked) backlog(now int64) (b int64) {
	last := int64(0)
	for _, e := range append(slices.Clone(h.events), markedEvent{at: now}) {
		b = max(0, b-(e.at-last)/1000*h.div)
		b, last = max(0, b+e.units*h.step), e.at
	}
	return (b + h.div - 1) / h.div
}

// TestGivenBackOften charges a bucket at random, and gives much of it back: what stands
// is never less than if that had never been charged. It is no more either where
// it is given back within the second and in the order of the charges.
func TestGivenBackOften(t *testing.T) {
	need.Time(t)
	t.Parallel()
	now := int64(1_000_000_000_000_000_000)
	store := open(t, redistest.Start(t).URL(), redisstore.Options{Prefix: "often", Now: func() int64 { return now }})
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 17))
		quick := seed%2 == 0 // time goes by, there are refunds, and charges of any age come back
		text, h := "40/40s", marked{step: 1e6, div: 1}
		if seed%3 == 0 {
			text, h = "35/25s", marked{step: 5e6, div: 7}
		}
		layer := stint.Layer{Bound: bind(t, store, text), Key: fmt.Sprint(seed), Weight: 1 + int64(seed%5/4)}
		var open []markedCharge
		for range 40 {
			if quick {
				now += rnd.Int64N(400) * int64(time.Millisecond)
			}
			h.act(t, rnd, store, layer, now, &open, quick)
			d, err := layer.Bound.Decide(ctx, meter.OpPeek, layer.Key, 1)
			if err != nil {
				t.Fatal(err)
			}
			want, is := time.Duration(h.backlog(now))*time.Microsecond, d.ResetAfter
			if is < want-time.Microsecond || !quick && is > want+time.Microsecond {
				t.Fatalf("seed %d, %s: %v are in use, want %v, after %v", seed, text, is, want, h.events)
			}
		}
	}
}

// A markedCharge is one that may be given back.
type markedCharge struct {
	markedEvent
	marks []string
}

// act charges, refunds or gives back.
func (h *marked) act(t *testing.T, rnd *rand.Rand, store *redisstore.Store, layer stint.Layer, now int64, open *[]markedCharge, quick bool) {
	t.Helper()
	units := 1 + rnd.Int64N(3)
	do := rnd.IntN(10)
	switch {
	case do < 4 && len(*open) > 0:
		i := 0
		if quick {
			i = rnd.IntN(len(*open))
		}
		back := (*open)[i]
		*open = slices.Delete(*open, i, i+1)
		if err := store.GiveBack(layer, back.units/layer.Weight, back.marks); err != nil {
			t.Fatal(err)
		}
		if at := slices.Index(h.events, back.markedEvent); at >= 0 {
			h.events = slices.Delete(h.events, at, at+1)
		}
	case do == 4 && quick:
		if _, err := store.Refund(ctx, []stint.Layer{layer}, units); err != nil {
			t.Fatal(err)
		}
		h.events = append(h.events, markedEvent{now, -units * layer.Weight})
	case do == 5:
		if d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{layer}, units); err != nil {
			t.Fatal(err)
		} else if d.Allowed {
			h.events = append(h.events, markedEvent{now, units * layer.Weight})
		}
	default:
		allowed, marks, err := store.ChargeMarked(layer, units)
		if err != nil {
			t.Fatal(err)
		}
		if allowed {
			e := markedEvent{now, units * layer.Weight}
			h.events = append(h.events, e)
			*open = append(*open, markedCharge{e, marks})
		}
	}
}
