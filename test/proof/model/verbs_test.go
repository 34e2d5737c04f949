package model_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stint-dev/stint/test/proof/model"
)

// Of 5 a second, 4 were taken at 0. What another limit says of that, when it only
// looks and when it takes 1, in ms; worked out by hand from the definition.
func TestChange(t *testing.T) {
	for _, c := range []struct {
		what, kind       string
		change           func(*model.Spec)
		remaining, reset int64 // to a peek
		allowed          bool
		left, retry, end int64 // to a take
	}{
		{"nothing", model.GCRA, func(*model.Spec) {}, 1, 800, true, 0, 0, 1000},
		{"drains as before until a take", model.GCRA, func(s *model.Spec) { s.Count, s.Burst = 10, 10 }, 6, 800, true, 5, 0, 500},
		{"just enough for it", model.GCRA, func(s *model.Spec) { s.Count, s.Burst = 10, 4 }, 0, 800, false, 0, 100, 400},
		{"more than it has room for", model.GCRA, func(s *model.Spec) { s.Count, s.Burst = 10, 1 }, 0, 800, false, 0, 800, 800},
		{"three more than it has room for", model.GCRA, func(s *model.Spec) { s.Count, s.Burst = 1, 3 }, 0, 800, false, 0, 400, 800},
		{"units kept", model.Queue, func(s *model.Spec) { s.Count, s.Burst = 10, 9 }, 6, 800, true, 5, 0, 500},
		{"tokens kept", model.Interval, func(s *model.Spec) { s.Count, s.Burst = 4, 9 }, 5, 1000, true, 4, 0, 2000},
		{"more than it has room for", model.Interval, func(s *model.Spec) { s.Burst = 3 }, 0, 1000, false, 0, 1000, 1000},
		{"one count", model.Fixed, func(s *model.Spec) { s.Count = 9 }, 5, 1000, true, 4, 0, 1000},
		{"one count, a lower limit", model.Fixed, func(s *model.Spec) { s.Count = 2 }, 0, 1000, false, 0, 1000, 1000},
		{"another period", model.Fixed, func(s *model.Spec) { s.Period = 2 * sec }, 5, 0, true, 4, 0, 2000},
		{"another calendar", model.Fixed, func(s *model.Spec) { s.Calendar, s.Zone = "day", "UTC" }, 5, 0, true, 4, 0, 86_400_000},
		{"one log", model.Log, func(s *model.Spec) { s.Count = 3 }, 0, 1000, false, 0, 1000, 1000},
		{"one count", model.Counter, func(s *model.Spec) { s.Count = 9; s.Relaxed = true }, 5, 2000, true, 4, 0, 2000},
		{"other parts", model.Parts, func(s *model.Spec) { s.Parts = 2 }, 5, 0, true, 4, 0, 1500},
		{"another kind", model.GCRA, func(s *model.Spec) { s.Kind = model.Log }, 5, 0, true, 4, 0, 1000},
	} {
		old := model.Spec{Kind: c.kind, Count: 5, Period: sec, Burst: 5, Parts: 4}
		if c.kind == model.Queue {
			old.Burst = 4
		}
		changed := old
		c.change(&changed)
		m := model.New()
		layer := []model.Layer{{Name: "limit", Spec: old, Key: "a"}}
		m.Take(0, layer, 4)
		before := m.Peek(0, layer, 1)
		layer[0].Spec = changed
		expect(t, c.kind+", "+c.what, m.Peek(0, layer, 0), true, c.remaining, 0, c.reset*ms)
		layer[0].Spec = old
		after := m.Peek(0, layer, 1)
		expect(t, c.kind+", "+c.what+": a peek writes", after, before.Allowed, before.Remaining, before.RetryAfter.Int64(), before.ResetAfter.Int64())
		layer[0].Spec = changed
		expect(t, c.kind+", "+c.what+", taken", m.Take(0, layer, 1), c.allowed, c.left, c.retry*ms, c.end*ms)
	}
}

// One reservation at a time among random takes: after it was settled for less,
// a key never has more than if the true cost had been charged at once.
func TestGivingBackNeverMints(t *testing.T) {
	for _, spec := range everyKind {
		spec.Count, spec.Period = 7, 60
		rng := rand.New(rand.NewPCG(7, 8))
		m, twin, now := model.New(), model.New(), int64(0)
		for range 2000 {
			now += rng.Int64N(60)
			cost := 1 + rng.Int64N(4)
			actual := rng.Int64N(cost + 1)
			if spec.FromFirst {
				actual = max(actual, 1) // a window begins also with what costs nothing in the end
			}
			if _, id := m.Reserve(now, on(spec), cost, 1000); id != 0 {
				twin.Charge(now, on(spec), actual)
				for range rng.IntN(4) {
					now += rng.Int64N(20)
					if m.Take(now, on(spec), 1).Allowed {
						twin.Charge(now, on(spec), 1)
					}
				}
				m.Settle(now, id, actual)
			}
			a, b := m.Peek(now, on(spec), 0), twin.Peek(now, on(spec), 0)
			if a.Remaining > b.Remaining || a.ResetAfter.Cmp(b.ResetAfter) < 0 {
				t.Fatalf("%s at %d: %+v, but %+v had the true cost been known", spec.Kind, now, a, b)
			}
		}
	}
}

// Every verb in random order, on two layers: every wait is tight and every
// number in its range.
func TestRandomVerbs(t *testing.T) {
	for i, first := range everyKind {
		rng := rand.New(rand.NewPCG(9, uint64(i)))
		second := everyKind[rng.IntN(len(everyKind))]
		first.Count, first.Period, second.Count, second.Period = 7, 60, 5, 33
		first.CountDenied = i >= 3 && i%2 == 0
		layers := []model.Layer{{Name: "1", Spec: first, Key: "a"}, {Name: "2", Spec: second, Key: "b"}}
		m, now, ids := model.New(), int64(0), []int{}
		for range 3000 {
			now += rng.Int64N(15)
			cost := rng.Int64N(9)
			var a model.Answer
			switch op := rng.IntN(40); {
			case op < 10:
				var id int
				if a, id = m.Reserve(now, layers, cost, 50); id != 0 {
					ids = append(ids, id)
				}
			case op < 20 && len(ids) > 0:
				a = m.Settle(now, ids[rng.IntN(len(ids))], cost)
				ids = ids[max(0, len(ids)-5):]
			case op < 22:
				a = m.Refund(now, layers, cost)
			case op == 22:
				m.Reset(now, layers[:1])
				continue
			case op == 23:
				changed := layers[0].Spec
				changed.Count = 4 + rng.Int64N(6)
				layers[0].Spec = changed
				continue
			case op < 28:
				a = m.TakeUpTo(now, layers, cost)
				cost = 1
			default:
				a = m.Take(now, layers, cost)
			}
			if a.Remaining < 0 || a.Remaining > a.Limit || a.ResetAfter.Sign() < 0 || a.Delay.Sign() < 0 {
				t.Fatalf("%s and %s: %+v", first.Kind, second.Kind, a)
			}
			if !a.Allowed {
				if err := m.Tight(now, layers, cost, a.RetryAfter); err != nil {
					t.Fatalf("%s and %s: %v", first.Kind, second.Kind, err)
				}
			}
		}
	}
}
