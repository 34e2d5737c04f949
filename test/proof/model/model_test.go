package model_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint/test/proof/model"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
)

// on is one layer called by its kind, on key "a".
func on(spec model.Spec) []model.Layer {
	return []model.Layer{{Name: spec.Kind, Spec: spec, Key: "a"}}
}

// every kind, 5 a second, with the burst that its capacity is 5.
var everyKind = []model.Spec{
	{Kind: model.GCRA, Count: 5, Period: sec, Burst: 5},
	{Kind: model.Interval, Count: 5, Period: sec, Burst: 5},
	{Kind: model.Queue, Count: 5, Period: sec, Burst: 4},
	{Kind: model.Fixed, Count: 5, Period: sec},
	{Kind: model.Fixed, Count: 5, Period: sec, FromFirst: true},
	{Kind: model.Log, Count: 5, Period: sec},
	{Kind: model.Counter, Count: 5, Period: sec},
	{Kind: model.Counter, Count: 5, Period: sec, Relaxed: true},
	{Kind: model.Parts, Count: 5, Period: sec, Parts: 4},
}

// expect compares what a table gives: retry and reset in ns, retry −1 for never.
func expect(t *testing.T, what string, a model.Answer, allowed bool, remaining, retry, reset int64) {
	t.Helper()
	got := int64(-1)
	if a.RetryAfter != nil {
		got = a.RetryAfter.Int64()
	}
	if a.Allowed != allowed || a.Remaining != remaining || got != retry || a.ResetAfter.Int64() != reset {
		t.Errorf("%s: got allowed %v, remaining %d, retry %d, reset %v; want %v, %d, %d, %d",
			what, a.Allowed, a.Remaining, got, a.ResetAfter, allowed, remaining, retry, reset)
	}
}

// Random takes: waits are tight, remaining is exactly what passes one by one,
// and a denial changes nothing.
func TestRandomTakes(t *testing.T) {
	for _, spec := range everyKind {
		rng := rand.New(rand.NewPCG(1, 2))
		spec.Count, spec.Period = 7, 60
		if spec.Kind == model.Parts {
			spec.Parts = 7
		}
		m, now := model.New(), int64(0)
		for range 3000 {
			now += rng.Int64N(20)
			cost := 1 + rng.Int64N(spec.Count)
			before := m.Peek(now, on(spec), cost)
			a := m.Take(now, on(spec), cost)
			if before.Allowed != a.Allowed || before.Delay.Cmp(a.Delay) != 0 {
				t.Fatalf("%s: peek %+v, take %+v", spec.Kind, before, a)
			}
			if a.Allowed {
				continue
			}
			if a.RetryAfter != nil && before.RetryAfter.Cmp(a.RetryAfter) != 0 ||
				before.Remaining != a.Remaining || before.ResetAfter.Cmp(a.ResetAfter) != 0 {
				t.Fatalf("%s: a denial changed %+v to %+v", spec.Kind, before, a)
			}
			if err := m.Tight(now, on(spec), cost, a.RetryAfter); err != nil {
				t.Fatalf("%s at %d: %v", spec.Kind, now, err)
			}
		}
		for n := m.Peek(now, on(spec), 0).Remaining; n > 0; n-- {
			if !m.Take(now, on(spec), 1).Allowed {
				t.Fatalf("%s: %d of the remaining units do not pass", spec.Kind, n)
			}
		}
		if m.Take(now, on(spec), 1).Allowed {
			t.Fatalf("%s: more passes than remained", spec.Kind)
		}
	}
}

func TestTightRejects(t *testing.T) {
	m := model.New()
	l := on(model.Spec{Kind: model.GCRA, Count: 3, Period: 1000, Burst: 3})
	m.Take(0, l, 3)
	for _, c := range []struct {
		cost, wait int64
		ok         bool
	}{{1, 334, true}, {1, 333, false}, {1, 335, false}, {1, -1, false}, {3, 1000, true}, {0, 0, true}} {
		if err := m.Tight(0, l, c.cost, big.NewInt(c.wait)); (err == nil) != c.ok {
			t.Errorf("cost %d after %d ns: %v", c.cost, c.wait, err)
		}
	}
	if m.Tight(0, l, 3, nil) == nil || m.Tight(0, l, 4, nil) != nil {
		t.Error("never is for costs above the limit alone")
	}
}

func TestLayers(t *testing.T) {
	second := model.Layer{Name: "s", Spec: model.Spec{Kind: model.GCRA, Count: 10, Period: sec, Burst: 10}, Key: "a"}
	minute := model.Layer{Name: "m", Spec: model.Spec{Kind: model.Fixed, Count: 12, Period: 60 * sec, CountDenied: true}, Key: "a"}
	both := []model.Layer{second, minute}
	m := model.New()
	expect(t, "first", m.Take(0, both, 10), true, 0, 0, 60*sec)
	// The bucket denies; the window, which would have admitted it, counts it
	// and is full from then on: the wait is the longer one.
	a := m.Take(0, both, 2)
	expect(t, "denied", a, false, 0, 60*sec, 60*sec)
	if !slices.Equal(a.DeniedBy, []int{0}) {
		t.Errorf("denied by %v, want the first alone", a.DeniedBy)
	}
	a = m.Take(sec, both, 11)
	expect(t, "never", a, false, 0, -1, 59*sec)
	if !slices.Equal(a.DeniedBy, []int{0, 1}) {
		t.Errorf("denied by %v, want both", a.DeniedBy)
	}
	expect(t, "the bucket was left alone", m.Peek(sec, []model.Layer{second}, 10), true, 10, 0, 0)
}

// Requests of one unit that are five bytes of a bucket and one of a window.
func TestWeights(t *testing.T) {
	bytes := model.Layer{Name: "b", Spec: model.Spec{Kind: model.GCRA, Count: 33, Period: sec, Burst: 33}, Key: "a", Weight: 5}
	requests := model.Layer{Name: "r", Spec: model.Spec{Kind: model.Fixed, Count: 4, Period: 60 * sec, CountDenied: true}, Key: "a"}
	both := []model.Layer{bytes, requests}
	m := model.New()
	a, id := m.Reserve(0, both, 2, 60*sec)
	expect(t, "two requests", a, true, 2, 0, 60*sec)
	if a.Limit != 4 {
		t.Errorf("the window stands with a limit of %d", a.Limit)
	}
	expect(t, "their bytes", a.Alone[0], true, 23, 0, 303030304)
	expect(t, "their count", a.Alone[1], true, 2, 0, 60*sec)
	if a.Alone[0].Taken != 10 || a.Alone[1].Taken != 2 || a.Alone[0].Limit != 33 {
		t.Errorf("%+v", a.Alone)
	}
	// Settled at five: 25 bytes, and one request more than the window has.
	a = m.Settle(0, id, 5)
	expect(t, "settled", a, true, 0, 0, 60*sec)
	expect(t, "settled bytes", a.Alone[0], true, 8, 0, 757575758)
	expect(t, "refunded", m.Refund(0, both, 3), true, 2, 0, 60*sec)
	if a = m.TakeUpTo(0, both, 9); a.Taken != 2 {
		t.Errorf("took %d, but two are left in the window, and four in the bucket", a.Taken)
	}
	// Seven are 35 bytes, more than ever pass; the window counts them too.
	a = m.Take(60*sec, both, 7)
	expect(t, "never", a, false, 0, -1, 60*sec)
	expect(t, "never by bytes", a.Alone[0], false, 33, -1, 0)
	// What an int64 does not hold passes under no limit, and counts as the most.
	most := model.Layer{Name: "m", Spec: model.Spec{Kind: model.Fixed, Count: math.MaxInt64, Period: sec, CountDenied: true}, Key: "a", Weight: math.MaxInt64/2 + 1}
	a = m.Take(120*sec, []model.Layer{most}, 2)
	expect(t, "beyond", a, false, 0, -1, sec)
	if a.Limit != 1 || a.Alone[0].Limit != math.MaxInt64 || a.Alone[0].Remaining != 0 {
		t.Errorf("%+v", a)
	}
}

func TestBadRequestsPanic(t *testing.T) {
	l := on(everyKind[0])
	for name, f := range map[string]func(*model.Model){
		"cost below 0":      func(m *model.Model) { m.Take(0, l, -1) },
		"same key twice":    func(m *model.Model) { m.Take(0, append(l, l...), 1) },
		"unknown id":        func(m *model.Model) { m.Settle(0, 1, 1) },
		"unknown kind":      func(m *model.Model) { m.Take(0, on(model.Spec{Kind: "no"}), 1) },
		"unknown time zone": func(m *model.Model) { m.Take(0, on(day("No/Where")), 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(model.New())
		}()
	}
}
