package model_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stint-dev/stint/test/proof/model"
)

// Reserve 3 of 5 a second at the given time, settle at another; what remains
// right after tells what was given back or charged.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		kind                         string
		reserved, settled            int64 // ms
		actual, remaining, resetMsec int64
	}{
		{model.GCRA, 0, 0, 1, 4, 200},
		{model.GCRA, 0, 300, 1, 5, 0},    // 300 ms are left of the charge, 400 asked for
		{model.GCRA, 0, 100, 1, 4, 100},  // 500 ms are left of it, 400 asked for
		{model.GCRA, 0, 700, 0, 5, 0},    // all forgiven
		{model.GCRA, 0, 0, 8, 0, 1600},   // debt
		{model.GCRA, 0, 0, 100, 0, 2000}, // at most one more drain
		{model.Interval, 0, 0, 1, 4, 1000},
		{model.Interval, 0, 1000, 0, 5, 0},
		{model.Interval, 0, 0, 9, 0, 2000},
		{model.Interval, 0, 0, 99, 0, 2000},
		{model.Queue, 0, 0, 1, 4, 200},
		{model.Queue, 0, 0, 100, 0, 2000},
		{model.Fixed, 0, 999, 1, 4, 1},
		{model.Fixed, 0, 1000, 1, 5, 0},
		{model.Fixed, 0, 999, 9, 0, 1},
		{model.Log, 0, 999, 1, 4, 1},
		{model.Log, 0, 1000, 1, 5, 0},
		{model.Log, 0, 999, 9, 0, 1000},
		{model.Counter, 0, 1000, 1, 4, 1000}, // from the window before
		{model.Counter, 0, 2000, 1, 5, 0},
		{model.Counter, 0, 0, 9, 0, 2000},
		{model.Parts, 0, 1000, 1, 4, 250}, // the part counts to 1.25 s
		{model.Parts, 0, 1250, 1, 5, 0},
		{model.Parts, 0, 1000, 9, 0, 1250},
	} {
		spec := model.Spec{Kind: c.kind, Count: 5, Period: sec, Burst: 5, Parts: 4}
		if c.kind == model.Queue {
			spec.Burst = 4
		}
		m := model.New()
		_, id := m.Reserve(c.reserved*ms, on(spec), 3, 60*sec)
		first := m.Settle(c.settled*ms, id, c.actual)
		expect(t, c.kind, first, true, c.remaining, 0, c.resetMsec*ms)
		again := m.Settle(c.settled*ms+sec, id, 0)
		expect(t, c.kind+" again", again, true, c.remaining, 0, c.resetMsec*ms)
	}
}

func TestSettleTooLate(t *testing.T) {
	for _, spec := range everyKind {
		m := model.New()
		_, id := m.Reserve(0, on(spec), 5, 10*ms)
		before := m.Peek(10*ms, on(spec), 0)
		expect(t, spec.Kind+" expired", m.Settle(10*ms, id, 0), true, before.Remaining, 0, before.ResetAfter.Int64())

		m = model.New()
		_, id = m.Reserve(0, on(spec), 5, sec)
		m.Reset(0, on(spec))
		m.Take(0, on(spec), 5)
		if a := m.Cancel(0, id); a.Remaining != 0 {
			t.Errorf("%s: a reservation gives back after a reset: %+v", spec.Kind, a)
		}
		if _, id := m.Reserve(0, on(spec), 1, sec); id != 0 {
			t.Errorf("%s: a denied reservation has id %d", spec.Kind, id)
		}
	}
}

func TestCancelRestores(t *testing.T) {
	for _, spec := range everyKind {
		m := model.New()
		m.Take(0, on(spec), 2)
		before := m.Peek(0, on(spec), 0)
		_, id := m.Reserve(0, on(spec), 3, sec)
		expect(t, spec.Kind, m.Cancel(0, id), true, before.Remaining, 0, before.ResetAfter.Int64())
	}
}

func TestRefund(t *testing.T) {
	for _, spec := range everyKind {
		m := model.New()
		m.Take(0, on(spec), 5)
		if a := m.Refund(0, on(spec), 2); a.Remaining != 2 {
			t.Errorf("%s: refund of 2 leaves %+v", spec.Kind, a)
		}
		expect(t, spec.Kind, m.Refund(0, on(spec), math.MaxInt64), true, 5, 0, 0)
	}
	// Newest first: the older entry, which ends sooner, is the one that stays.
	spec := model.Spec{Kind: model.Log, Count: 5, Period: sec}
	m := model.New()
	m.Take(0, on(spec), 1)
	m.Take(500*ms, on(spec), 1)
	expect(t, "log", m.Refund(500*ms, on(spec), 1), true, 4, 0, 500*ms)
}

func TestSaturation(t *testing.T) {
	for _, kind := range []string{model.Fixed, model.Counter, model.Parts, model.Log} {
		spec := model.Spec{Kind: kind, Count: 10, Period: sec, Parts: 4, CountDenied: true}
		m := model.New()
		for range 3 {
			m.Take(0, on(spec), math.MaxInt64)
		}
		a := m.Take(0, on(spec), 1)
		if a.Allowed || a.RetryAfter == nil {
			t.Errorf("%s: %+v", kind, a)
		}
		if err := m.Tight(0, on(spec), 1, a.RetryAfter); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

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

// There and back: what a lower limit has no room for stays what it was.
func TestThereAndBack(t *testing.T) {
	for _, spec := range everyKind {
		low := spec
		low.Count, low.Burst = 2, 1
		m := model.New()
		m.Take(0, on(spec), 5)
		before := m.Take(100*ms, on(spec), 1)
		if a := m.Take(100*ms, on(low), 1); a.Allowed || a.Remaining != 0 {
			t.Errorf("%s: %+v", spec.Kind, a)
		}
		if a := m.Take(100*ms, on(spec), 1); a.Allowed || a.RetryAfter.Cmp(before.RetryAfter) != 0 || a.ResetAfter.Cmp(before.ResetAfter) != 0 {
			t.Errorf("%s: %+v after a denial under %+v, %+v before", spec.Kind, a, low, before)
		}
	}
}

func TestReservationAcrossChange(t *testing.T) {
	for _, spec := range everyKind {
		changed := spec
		changed.Count++
		back := int64(1)
		if spec.Kind == model.GCRA || spec.Kind == model.Queue || spec.Kind == model.Interval {
			back = 0 // other numbers have come into force
		}
		m := model.New()
		_, less := m.Reserve(0, on(spec), 1, sec)
		_, more := m.Reserve(0, on(spec), 1, sec)
		m.Take(0, on(changed), 1)
		was := m.Peek(0, on(changed), 0)
		m.Cancel(0, less)
		if a := m.Peek(0, on(changed), 0); a.Remaining != was.Remaining+back {
			t.Errorf("%s: gives back %d after a change, want %d", spec.Kind, a.Remaining-was.Remaining, back)
		}
		m.Settle(0, more, 2)
		if a := m.Peek(0, on(changed), 0); a.Remaining != was.Remaining+back-1 {
			t.Errorf("%s: a debt of 1 changes %d to %d", spec.Kind, was.Remaining+back, a.Remaining)
		}
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
