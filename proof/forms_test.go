package proof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/proof/model"
	"github.com/stint-dev/stint/proof/oracle"
	"pgregory.net/rapid"
)

// TestDifferentialForms asks for a few keys under many forms of one name, each a
// list of one to three limits, in any order, through restarts as well, and wants
// what the model says.
func TestDifferentialForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &formDifferential{differential: newDifferential(t, 1)}
		d.store = d.stores[0].store.(*memstore.Store)
		d.now = rapid.SampledFrom([]int64{0, 1e9, 1763700000123456789}).Draw(t, "start")
		for range rapid.IntRange(2, 6).Draw(t, "forms") {
			d.form()
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			d.step()
		}
	})
}

type formDifferential struct {
	*differential
	store *memstore.Store
	lists [][]stint.Limit
}

// form binds another list of limits. IDs are few, so that forms have some in
// common.
func (d *formDifferential) form() {
	var list []stint.Limit
	ids := rapid.Permutation([]string{"a", "b", "c", "d"}).Draw(d.t, "ids")
	for i := range rapid.IntRange(1, 3).Draw(d.t, "limits") {
		l := d.anyLimit().WithName(ids[i])
		list, d.limits = append(list, l), append(d.limits, l)
	}
	if !slices.ContainsFunc(d.lists, func(o []stint.Limit) bool { return slices.Equal(o, list) }) {
		d.lists = append(d.lists, list)
	}
	d.bindAll()
}

func (d *formDifferential) bindAll() {
	s := d.stores[0]
	s.bound = s.bound[:0]
	for _, list := range d.lists {
		b, err := s.store.Bind("name", list...)
		if err != nil {
			d.t.Fatal(err)
		}
		s.bound = append(s.bound, b)
	}
}

// layers draws a form and a key.
func (d *formDifferential) layers() (r request) {
	i := rapid.IntRange(0, len(d.lists)-1).Draw(d.t, "form")
	key := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(d.t, "key")
	weight := int64(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(d.t, "weight"))
	r.columns = [][]stint.Layer{{{Bound: d.stores[0].bound[i], Key: key, Weight: weight, Answers: make([]stint.Decision, len(d.lists[i]))}}}
	for _, l := range d.lists[i] {
		r.reference = append(r.reference, model.Layer{Name: "name", ID: l.ID(), Spec: spec(l), Key: key, Weight: weight})
	}
	return r
}

func (d *formDifferential) step() {
	d.wait()
	r, c, ctx := d.layers(), d.cost(), context.Background()
	decide := func(op meter.Op) func(int, *column) (stint.Decision, error) {
		return func(i int, s *column) (stint.Decision, error) { return s.store.Decide(ctx, op, r.columns[i], c) }
	}
	switch rapid.IntRange(0, 12).Draw(d.t, "op") {
	case 0, 1:
		d.each(fmt.Sprint("peek ", c), d.model.Peek(d.now, r.reference, c), decide(meter.OpPeek))
	case 2:
		d.each(fmt.Sprint("take_up_to ", c), d.model.TakeUpTo(d.now, r.reference, c), decide(meter.OpTakeUpTo))
	case 3, 4:
		d.reserve(r, c)
	case 5, 6:
		if len(d.held) > 0 {
			d.settle(d.held[rapid.IntRange(0, len(d.held)-1).Draw(d.t, "reservation")], c)
		}
	case 7:
		if rapid.IntRange(0, 3).Draw(d.t, "reset") > 0 {
			d.each(fmt.Sprint("refund ", c), d.model.Refund(d.now, r.reference, c), func(i int, s *column) (stint.Decision, error) {
				return s.store.Refund(ctx, r.columns[i], c)
			})
			return
		}
		d.model.Reset(d.now, r.reference)
		if err := d.store.Reset(ctx, r.columns[0]); err != nil {
			d.t.Fatal(err)
		}
	case 8:
		if len(d.held) == 0 && rapid.Bool().Draw(d.t, "restart") {
			d.restart()
		}
	default:
		d.each(fmt.Sprint("take ", c), d.model.Take(d.now, r.reference, c), decide(meter.OpTake))
	}
}

// settle settles by the ID alone, under any form in force.
func (d *formDifferential) settle(h held, c int64) {
	want := d.model.Settle(d.now, h.id, c)
	d.each(fmt.Sprint("settle ", c), want, func(_ int, s *column) (stint.Decision, error) {
		got, err := s.store.Settle(context.Background(), h.ids[0], c)
		if errors.Is(err, stint.ErrReservation) {
			return s.store.Decide(context.Background(), meter.OpPeek, h.columns[0], 0)
		}
		return got, err
	})
}

// restart saves the store and goes on with another that has loaded it.
func (d *formDifferential) restart() {
	var file bytes.Buffer
	if err := d.store.Save(&file); err != nil {
		d.t.Fatal(err)
	}
	d.store = memstore.New(memstore.Options{Now: func() int64 { return d.now }})
	if err := d.store.Load(&file); err != nil {
		d.t.Fatal(err)
	}
	d.stores[0].store = d.store
	d.bindAll()
}

// TestFormsEnvelope asks for one key under three forms of a limit in turn, for
// random stretches, and holds what each let pass to its own envelope: however
// often the limit changes, no form mints.
func TestFormsEnvelope(t *testing.T) {
	for seed := range uint64(scaled(30, 100, 3000)) {
		rng := rand.New(rand.NewPCG(seed, 11))
		now := int64(1_763_675_900_000_000_000)
		store := memstore.New(memstore.Options{Now: func() int64 { return now }})
		limits, events := make([]stint.Limit, 3), make([][]oracle.Event, 3)
		all := make([]*stint.Limiter, 3)
		for i := range limits {
			for limits[i] = (stint.Limit{}); limits[i].Validate() != nil || limits[i].CountDenied() || limits[i].Algorithm() == meter.LeakyQueue; {
				limits[i] = parse(t, everyKind[rng.IntN(len(everyKind))])
			}
			limits[i] = limits[i].WithName("limit")
			var err error
			if all[i], err = stint.NewLimiter(store, "changing", limits[i]); err != nil {
				t.Fatal(err)
			}
		}
		for range 30 {
			i := rng.IntN(3)
			for range rng.IntN(20) {
				cost := 1 + rng.Int64N(3)
				d, err := all[i].Take(context.Background(), "k", cost)
				if err != nil {
					t.Fatal(err)
				}
				events[i] = append(events[i], oracle.Event{T: now, Key: "k", Cost: cost, Allowed: d.Allowed})
				if wait, ok := d.RetryAfter.Duration(); ok && wait > 3*limits[i].Period() && limits[i].Period() > time.Second {
					t.Errorf("%v: locked out for %v", limits[i], wait)
				}
				now += rng.Int64N(int64(limits[i].Period())/limits[i].Count() + 1)
			}
		}
		for i, l := range limits {
			for _, v := range oracle.Check(spec(l), events[i], 0) {
				t.Errorf("seed %d, %v beside %v: %v", seed, l, limits, v)
			}
		}
	}
}

// TestManyFormsEnvelope asks for a key under more forms than a store counts, in
// any order: what each form let pass, by itself and written down as it passed, is
// a history that the form admits. So no way to go from one to another mints.
func TestManyFormsEnvelope(t *testing.T) {
	var now int64
	for check := range scaled(300, 1000, 30_000) {
		rng := rand.New(rand.NewPCG(uint64(check), 12))
		store := memstore.New(memstore.Options{Now: func() int64 { return now }})
		wander(t, rng, &now, check, func(_ string, limits []stint.Limit) stint.Bound {
			b, err := store.Bind("wandering", limits...)
			if err != nil {
				t.Fatal(err)
			}
			return b
		})
		store.Close()
	}
}

// wander goes from form to form of a key, and judges each.
func wander(t *testing.T, rng *rand.Rand, now *int64, check int, bind func(key string, limits []stint.Limit) stint.Bound) {
	t.Helper()
	*now = 1_763_675_900_000_000_000 + rng.Int64N(int64(time.Hour))/1e6*1e6
	key := fmt.Sprint("key", check)
	lists, bounds := make([][]stint.Limit, 5+rng.IntN(4)), []stint.Bound{}
	for i := range lists {
		ids := []int{0, 1}
		if rng.IntN(4) == 0 {
			ids = []int{1, 0}
		}
		for _, id := range ids[:1+rng.IntN(8)/7] {
			lists[i] = append(lists[i], wanderingLimit(rng).WithName(fmt.Sprint("limit", id)))
		}
		bounds = append(bounds, bind(key, lists[i]))
	}
	judge, passed := model.New(), 0
	for range 60 {
		i := rng.IntN(len(lists))
		for range 1 + rng.IntN(6) {
			cost := 1 + rng.Int64N(4)/3
			d, err := bounds[i].Decide(context.Background(), meter.OpTake, key, cost)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				var alone []model.Layer
				for _, l := range lists[i] {
					alone = append(alone, model.Layer{Name: fmt.Sprint("alone ", i), ID: l.ID(), Spec: spec(l), Key: key})
				}
				if a := judge.Take(*now, alone, cost); !a.Allowed {
					t.Fatalf("check %d, at %d: %d more pass under %v, beside %v: by itself it would wait %v", check, *now, cost, lists[i], lists, a.RetryAfter)
				}
				passed++
			}
			if rng.IntN(3) == 0 {
				*now += rng.Int64N(int64(lists[i][0].Period())/lists[i][0].Count()+1) / 1e6 * 1e6
			}
		}
		if rng.IntN(12) == 0 {
			*now += rng.Int64N(int64(lists[i][0].Period())) / 1e6 * 1e6
		}
	}
	if passed < 5 {
		t.Fatalf("check %d: %d passed under %v: little was judged", check, passed, lists)
	}
}

// wanderingLimit returns a limit of any kind, of which some are soon exhausted and
// others long idle.
func wanderingLimit(rng *rand.Rand) stint.Limit {
	kinds := []meter.Algorithm{meter.GCRA, meter.GCRA, meter.GCRA, meter.TokenBucketInterval, meter.LeakyQueue, meter.FixedWindow,
		meter.SlidingLog, meter.SlidingCounter, meter.SlidingSubWindows}
	periods := []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour}
	kind := kinds[rng.IntN(len(kinds))]
	l := stint.New(1+rng.Int64N(12), periods[rng.IntN(len(periods))]).WithAlgorithm(kind)
	if kind <= meter.LeakyQueue && kind != meter.SlidingLog && rng.IntN(2) == 0 {
		l = l.WithBurst(1 + rng.Int64N(20))
	}
	return l
}
