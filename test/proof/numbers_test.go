package proof_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/test/proof/model"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// TestDifferentialLists asks for a few keys under many lists of limits of one name,
// which have identities in common, in any order, through restarts as well, and wants
// what the model says.
func TestDifferentialLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDifferential(t, 1)
		d.lists = new(lists)
		d.now = rapid.SampledFrom([]int64{0, 1e9, 1763700000123456789}).Draw(t, "start")
		for range rapid.IntRange(2, 6).Draw(t, "forms") {
			d.lists.add(d)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			d.step()
		}
	})
}

// lists are of limits that are bound together, all under one name.
type lists struct{ all [][]stint.Limit }

// add binds another list of limits. Identities are few, so that lists have some in common.
func (s *lists) add(d *differential) {
	var list []stint.Limit
	names := rapid.Permutation([]string{"a", "b", "c", "d"}).Draw(d.t, "names")
	for i := range rapid.IntRange(1, 3).Draw(d.t, "limits") {
		l := d.anyLimit().WithName(names[i])
		named := func(o stint.Limit) bool { return o.Name() == names[i] }
		if at := slices.IndexFunc(d.limits, named); at >= 0 && rapid.IntRange(0, 4).Draw(d.t, "alike") > 0 {
			if alike := d.alike(d.limits[at]); alike.Validate() == nil {
				l = alike
			}
		}
		list, d.limits = append(list, l), append(d.limits, l)
	}
	if !slices.ContainsFunc(s.all, func(o []stint.Limit) bool { return slices.Equal(o, list) }) {
		s.all = append(s.all, list)
	}
	s.bind(d)
}

func (s *lists) bind(d *differential) {
	column := d.stores[0]
	column.bound = column.bound[:0]
	for _, list := range s.all {
		b, err := column.store.Bind("name", list...)
		if err != nil {
			d.t.Fatal(err)
		}
		column.bound = append(column.bound, b)
	}
}

// layers draws a list and a key.
func (s *lists) layers(d *differential) (r request) {
	i := rapid.IntRange(0, len(s.all)-1).Draw(d.t, "list")
	key := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(d.t, "key")
	weight := int64(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(d.t, "weight"))
	r.columns = [][]stint.Layer{{{Bound: d.stores[0].bound[i], Key: key, Weight: weight, Answers: make([]stint.Decision, len(s.all[i]))}}}
	for _, l := range s.all[i] {
		r.reference = append(r.reference, model.Layer{Name: "name", ID: l.Name(), Spec: spec(l), Key: key, Weight: weight})
	}
	return r
}

// restart saves the store and goes on with another that has loaded it.
func (s *lists) restart(d *differential) {
	if len(d.held) > 0 || rapid.Bool().Draw(d.t, "runs on") {
		return
	}
	var file bytes.Buffer
	if err := d.stores[0].store.(*memstore.Store).Save(&file); err != nil {
		d.t.Fatal(err)
	}
	store := memstore.New(memstore.Options{Now: func() int64 { return d.now }})
	if err := store.Load(&file); err != nil {
		d.t.Fatal(err)
	}
	d.stores[0].store = store
	s.bind(d)
}

// TestAlternatingEnvelope asks for a key under four limits of one identity, in any
// order, among looks and denials: all that passes is a history of the largest count
// and the largest burst.
func TestAlternatingEnvelope(t *testing.T) {
	passed := 0
	for seed := range uint64(scaled(400, 2000, 30_000)) {
		rng := rand.New(rand.NewPCG(seed, 11))
		now := int64(1_763_675_900_000_000_000) + rng.Int64N(int64(time.Hour))
		store := memstore.New(memstore.Options{Now: func() int64 { return now }})
		var largest model.Spec
		limits, bounds := make([]stint.Limit, 4), make([]stint.Bound, 4)
		kind := meter.Algorithm(rng.IntN(len(meter.Algorithms())))
		for i := range limits {
			limits[i] = stint.New(1+rng.Int64N(40), time.Minute).WithAlgorithm(kind)
			if kind.Takes(meter.Burst) && rng.IntN(2) == 0 {
				limits[i] = limits[i].WithBurst(1 + rng.Int64N(60))
			}
			s := spec(limits[i])
			s.Count, s.Burst = max(s.Count, largest.Count), max(s.Burst, largest.Burst)
			largest = s
			var err error
			if bounds[i], err = store.Bind("alternating", limits[i]); err != nil {
				t.Fatal(err)
			}
		}
		var events []oracle.Event
		for range 150 {
			i, cost := rng.IntN(4), 1+rng.Int64N(5)/3
			if rng.IntN(3) == 0 {
				cost = 1 + rng.Int64N(limits[i].Capacity()+3)
			}
			op := meter.OpTake
			if rng.IntN(5) == 0 {
				op = meter.OpPeek
			}
			d, err := bounds[i].Decide(context.Background(), op, "k", cost)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed && op == meter.OpTake {
				passed++
				events = append(events, oracle.Event{T: now, Key: "k", Cost: cost, Allowed: true})
			}
			now += rng.Int64N(int64(time.Minute) / limits[i].Count() / 2)
		}
		if kind.Queues() {
			largest.Kind, largest.Burst = model.GCRA, largest.Burst+1 // what is let in; starts are promises of several paces
		}
		for _, v := range oracle.Check(largest, events, 0) {
			t.Fatalf("seed %d, %v in turns: %v", seed, limits, v)
		}
		store.Close()
	}
	t.Logf("%d passed", passed)
}
