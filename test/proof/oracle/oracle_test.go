package oracle_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint/test/proof/model"
	"github.com/stint-dev/stint/test/proof/oracle"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
)

var specs = map[string]model.Spec{
	"gcra":             {Kind: model.GCRA, Count: 7, Period: sec, Burst: 4},
	"interval":         {Kind: model.Interval, Count: 3, Period: sec, Burst: 7},
	"queue":            {Kind: model.Queue, Count: 7, Period: sec, Burst: 4},
	"fixed":            {Kind: model.Fixed, Count: 7, Period: sec},
	"fixed denied":     {Kind: model.Fixed, Count: 7, Period: sec, CountDenied: true},
	"from first":       {Kind: model.Fixed, Count: 7, Period: sec, FromFirst: true},
	"first and deny":   {Kind: model.Fixed, Count: 7, Period: sec, FromFirst: true, CountDenied: true},
	"day":              {Kind: model.Fixed, Count: 70, Calendar: "day", Zone: "Europe/Paris"},
	"log":              {Kind: model.Log, Count: 7, Period: sec},
	"log denied":       {Kind: model.Log, Count: 7, Period: sec, CountDenied: true},
	"counter":          {Kind: model.Counter, Count: 7, Period: sec},
	"counter relaxed":  {Kind: model.Counter, Count: 7, Period: sec, Relaxed: true},
	"sliding buckets":  {Kind: model.Parts, Count: 7, Period: sec, Parts: 4},
	"buckets and deny": {Kind: model.Parts, Count: 7, Period: sec, Parts: 4, CountDenied: true},
}

// limiter decides one event at its time; T, Key and Cost are filled in.
type limiter func(e oracle.Event) oracle.Event

// exact is the limiter that follows the contract.
func exact(spec model.Spec) limiter {
	m := model.New()
	return func(e oracle.Event) oracle.Event {
		a := m.Take(e.T, []model.Layer{{Name: "limit", Spec: spec, Key: e.Key}}, e.Cost)
		e.Allowed, e.Delay = a.Allowed, a.Delay.Int64()
		return e
	}
}

// history asks a limiter at random times, some four times as often as 7 a
// second allows.
func history(decide limiter, n int) []oracle.Event {
	rng := rand.New(rand.NewPCG(3, 4))
	var events []oracle.Event
	now := int64(0)
	for range n {
		now += rng.Int64N(170 * ms)
		if rng.IntN(40) == 0 {
			now += 3 * sec
		}
		e := oracle.Event{T: now, Key: string('a' + rune(rng.IntN(2))), Cost: 1 + rng.Int64N(3)}
		events = append(events, decide(e))
	}
	return events
}

// blur hides when each event was decided: somewhere within a call of up to the
// given length, ns. Events are shuffled, as callers side by side report them.
func blur(events []oracle.Event, longest int64) []oracle.Event {
	rng := rand.New(rand.NewPCG(5, 6))
	var blurred []oracle.Event
	for _, e := range events {
		at := e.T
		e.T = max(at-rng.Int64N(longest), 0)
		e.End = at + 1 + rng.Int64N(longest)
		blurred = append(blurred, e)
	}
	rng.Shuffle(len(blurred), func(i, j int) { blurred[i], blurred[j] = blurred[j], blurred[i] })
	return blurred
}

func TestExactLimiterPasses(t *testing.T) {
	for name, spec := range specs {
		events := history(exact(spec), 2000)
		if v := oracle.Judge(spec, events, 0); len(v) > 0 {
			t.Errorf("%s: %d violations, first: %v", name, len(v), v[0])
		}
		for _, longest := range []int64{ms, 50 * ms, 2 * sec} {
			if v := oracle.Judge(spec, blur(events, longest), 0); len(v) > 0 {
				t.Errorf("%s, calls of %d ns: %d violations, first: %v", name, longest, len(v), v[0])
			}
		}
	}
}

func TestDenyAllFails(t *testing.T) {
	for name, spec := range specs {
		events := history(func(e oracle.Event) oracle.Event { return e }, 200)
		for _, history := range [][]oracle.Event{events, blur(events, 20*ms)} {
			v := oracle.Justified(spec, history)
			if len(v) == 0 {
				t.Errorf("%s: a limiter that denies all is justified", name)
			}
			if !spec.CountDenied && len(v) != len(history) {
				t.Errorf("%s: %d of %d denials of nothing at all found", name, len(v), len(history))
			}
		}
	}
}

func TestAdmitAllFails(t *testing.T) {
	for name, spec := range specs {
		events := history(func(e oracle.Event) oracle.Event { e.Allowed = true; return e }, 500)
		for _, history := range [][]oracle.Event{events, blur(events, 20*ms)} {
			if len(oracle.Check(spec, history, 0)) == 0 {
				t.Errorf("%s: a limiter that admits all is within the envelope", name)
			}
		}
	}
}

// A limiter of one kind does not pass for another, unless it keeps within the
// other's envelope and denies no more: a log is a sound stand-in for
// sliding_buckets, and a limit that counts denied requests excuses any denial
// that follows others.
func TestWrongKindFails(t *testing.T) {
	for _, c := range []struct{ is, judged string }{
		{"fixed", "log"}, {"fixed", "counter"}, {"fixed", "gcra"}, {"fixed", "sliding buckets"},
		{"log", "fixed"}, {"log", "gcra"},
		{"gcra", "interval"}, {"gcra", "log"}, {"gcra", "queue"}, {"interval", "gcra"},
		{"queue", "gcra"}, {"counter", "log"}, {"counter relaxed", "counter"},
		{"sliding buckets", "log"}, {"log denied", "log"}, {"day", "fixed"},
		{"from first", "fixed"}, {"fixed", "from first"}, {"from first", "log"}, {"log", "from first"},
	} {
		if len(oracle.Judge(specs[c.judged], history(exact(specs[c.is]), 3000), 0)) == 0 {
			t.Errorf("%s passes for %s", c.is, c.judged)
		}
	}
}

// Bugs that limiters have had.
func TestPlantedBugs(t *testing.T) {
	for name, spec := range specs {
		sound := exact(spec)
		double := exact(spec)
		greedy := exact(spec)
		n := 0
		for bug, decide := range map[string]limiter{
			"two limiters take turns": func(e oracle.Event) oracle.Event {
				if n++; n%2 == 0 {
					return sound(e)
				}
				return greedy(e)
			},
			"each unit is charged twice": func(e oracle.Event) oracle.Event {
				e.Cost *= 2
				e = double(e)
				e.Cost /= 2
				return e
			},
		} {
			if len(oracle.Judge(spec, history(decide, 2000), 0)) == 0 {
				t.Errorf("%s: passes though %s", name, bug)
			}
		}
	}
}

// One unit, or one nanosecond, decides.
func TestEdges(t *testing.T) {
	take := func(at, cost int64) oracle.Event { return oracle.Event{T: at, Cost: cost, Allowed: true} }
	deny := func(at, cost int64) oracle.Event { return oracle.Event{T: at, Cost: cost} }
	third := model.Spec{Kind: model.GCRA, Count: 3, Period: 1000, Burst: 3}
	fixed := model.Spec{Kind: model.Fixed, Count: 5, Period: 1000}
	own := model.Spec{Kind: model.Fixed, Count: 5, Period: 1000, FromFirst: true}
	log := model.Spec{Kind: model.Log, Count: 5, Period: 1000}
	queue := model.Spec{Kind: model.Queue, Count: 3, Period: 1000, Burst: 1}
	for _, c := range []struct {
		what   string
		spec   model.Spec
		events []oracle.Event
		slack  int64
		ok     bool
	}{
		{"at 333⅓, rounded up", third, []oracle.Event{take(0, 3), take(334, 1)}, 0, true},
		{"a nanosecond early", third, []oracle.Event{take(0, 3), take(333, 1)}, 0, false},
		{"with slack", third, []oracle.Event{take(0, 3), take(333, 1)}, 1, true},
		{"denied at 333", third, []oracle.Event{take(0, 3), deny(333, 1)}, 0, true},
		{"denied at 334", third, []oracle.Event{take(0, 3), deny(334, 1)}, 0, false},
		{"denied before the charge", third, []oracle.Event{deny(0, 1), take(0, 3)}, 0, false},
		{"denied after it", third, []oracle.Event{take(0, 3), deny(0, 1)}, 0, true},
		{"denied side by side", third, []oracle.Event{{T: 0, End: 9, Cost: 1}, {T: 9, End: 12, Cost: 3, Allowed: true}}, 0, true},
		{"denied well before", third, []oracle.Event{{T: 0, End: 8, Cost: 1}, {T: 9, End: 12, Cost: 3, Allowed: true}}, 0, false},
		{"excused from its far end", third, []oracle.Event{take(0, 3), {T: 333, End: 400, Cost: 1}}, 0, true},
		{"2L around an edge", fixed, []oracle.Event{take(999, 5), take(1000, 5)}, 0, true},
		{"2L+1", fixed, []oracle.Event{take(999, 5), take(1000, 6)}, 0, false},
		{"either window", fixed, []oracle.Event{take(999, 5), {T: 998, End: 1000, Cost: 5, Allowed: true}}, 0, true},
		{"one window surely", fixed, []oracle.Event{take(999, 5), {T: 998, End: 999, Cost: 1, Allowed: true}}, 0, false},
		{"2L around the end", own, []oracle.Event{take(1, 1), take(1000, 4), take(1001, 5), deny(2000, 1), take(2001, 5)}, 0, true},
		{"3L", own, []oracle.Event{take(1, 5), take(1000, 6)}, 0, false},
		{"denied after the end", own, []oracle.Event{take(1, 5), deny(1001, 1)}, 0, false},
		{"denied after either end", own, []oracle.Event{{T: 1, End: 50, Cost: 5, Allowed: true}, deny(1049, 1)}, 0, true},
		{"a window later", log, []oracle.Event{take(0, 5), take(1000, 5)}, 0, true},
		{"a nanosecond sooner", log, []oracle.Event{take(0, 5), take(999, 1)}, 0, false},
		{"cost above the limit", log, []oracle.Event{deny(0, 6)}, 0, true},
		{"in turn", queue, []oracle.Event{take(0, 1), {T: 0, Cost: 1, Allowed: true, Delay: 334}}, 0, true},
		{"too soon", queue, []oracle.Event{take(0, 1), {T: 0, Cost: 1, Allowed: true, Delay: 332}}, 0, false},
		{"too many wait", queue, []oracle.Event{{T: 0, Cost: 1, Allowed: true, Delay: 335}}, 0, false},
		{"denied elsewhere", log, []oracle.Event{{T: 0, Cost: 1, Elsewhere: true}}, 0, true},
		{"cost 0", log, []oracle.Event{take(0, 5), take(0, 0)}, 0, true},
	} {
		v := oracle.Judge(c.spec, c.events, c.slack)
		if (len(v) == 0) != c.ok {
			t.Errorf("%s, %s: violations %v", c.spec.Kind, c.what, v)
		}
	}
}
