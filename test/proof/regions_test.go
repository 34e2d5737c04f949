package proof_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/test/proof/model"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// Regions that each have a store of their own hold parts of one limit of regionUnits
// a second, and of as many at once. Parts move between them while all are asked for
// more than they may let through, or for nothing, in turns.
const (
	regionUnits = 300
	regionDrain = time.Second // until a part that is used up is whole again
)

// A region is a store, and its part of the limit.
type region struct {
	limiter *stint.Limiter
	part    int64
	busy    bool
}

// A regional run has parts move, each higher so long after the other is lower.
type regionalRun struct {
	t       *testing.T
	rnd     *rand.Rand
	now     int64
	regions [3]*region
	events  []oracle.Event
	moved   int64 // units, of all moves together
}

func newRegionalRun(t *testing.T, seed uint64) *regionalRun {
	r := &regionalRun{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), now: 1e18}
	for i := range r.regions {
		store := memstore.New(memstore.Options{Now: func() int64 { return r.now }})
		t.Cleanup(func() { _ = store.Close() })
		limiter := made.Limiter(t, store, "api", stint.PerSecond(regionUnits/3))
		r.regions[i] = &region{limiter, regionUnits / 3, true}
	}
	return r
}

// set gives a region another part.
func (r *regionalRun) set(one *region, part int64) {
	one.part = part
	if err := one.limiter.SetLimits(stint.PerSecond(part)); err != nil {
		r.t.Fatal(err)
	}
}

// pass has requests come for so long.
func (r *regionalRun) pass(d time.Duration) {
	for end := r.now + int64(d); r.now < end; r.now += int64(2 * time.Millisecond) {
		for _, one := range r.regions {
			if r.rnd.IntN(300) == 0 {
				one.busy = !one.busy
			}
			for n := 0; one.busy && n < 3; n++ {
				r.ask(one)
			}
		}
	}
}

// ask has a request come, and reports whether it is let through.
func (r *regionalRun) ask(one *region) bool {
	ok, err := one.limiter.Allow(r.t.Context(), "key")
	if err != nil {
		r.t.Fatal(err)
	}
	r.events = append(r.events, oracle.Event{T: r.now, Key: "key", Cost: 1, Allowed: ok})
	return ok
}

// move moves a part of one region's to another, which has it so much later.
func (r *regionalRun) move(wait time.Duration) {
	from := r.regions[r.rnd.IntN(3)]
	to := r.regions[r.rnd.IntN(3)]
	if from == to || from.part < 2 {
		return
	}
	units := 1 + r.rnd.Int64N(from.part-1)
	r.moved += units
	r.set(from, from.part-units)
	r.pass(wait)
	r.set(to, to.part+units)
}

// above returns whether more passed in some stretch than one limit lets through, and
// so many units.
func (r *regionalRun) above(units int64) bool {
	spec := model.Spec{Kind: "gcra", Count: regionUnits, Period: int64(time.Second), Burst: regionUnits}
	return len(oracle.Check(spec, r.events, units)) > 0
}

// TestRegionsMove has parts move: where a region has more only a drain after another
// has less, all regions together stay within the one limit; without that wait each
// move lets at most what is moved pass once more.
func TestRegionsMove(t *testing.T) {
	for seed := range uint64(4) {
		patient, hasty := newRegionalRun(t, seed), newRegionalRun(t, seed)
		for range 12 {
			patient.move(regionDrain)
			patient.pass(time.Duration(patient.rnd.Int64N(int64(time.Second))))
			hasty.move(0)
			hasty.pass(time.Duration(hasty.rnd.Int64N(int64(2 * time.Second))))
		}
		if patient.above(0) {
			t.Errorf("seed %d: more passes than one limit lets through", seed)
		}
		if hasty.above(hasty.moved) {
			t.Errorf("seed %d: without a wait more than %d units above one limit", seed, hasty.moved)
		}
	}
}

// TestRegionsWorst reaches the bound: all parts are used up, then one moves at once.
func TestRegionsWorst(t *testing.T) {
	const units = 40
	for _, c := range []struct {
		wait time.Duration
		want int64 // units above the limit
	}{{0, units}, {regionDrain, 0}} {
		r := newRegionalRun(t, 0)
		flood := func() {
			for _, one := range r.regions {
				for r.ask(one) {
				}
			}
		}
		flood()
		r.set(r.regions[0], regionUnits/3-units)
		for end := r.now + int64(c.wait); r.now < end; flood() {
			r.now += int64(time.Millisecond)
		}
		r.set(r.regions[1], regionUnits/3+units)
		flood()
		if r.above(c.want) || c.want > 0 && !r.above(c.want-1) {
			t.Errorf("after %v: want %d units above the limit", c.wait, c.want)
		}
	}
}
