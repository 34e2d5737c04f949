package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// A running response is one that takes more while it runs, with what the definition says it
// has taken.
type running struct {
	*policy.Pending
	held, cost int64
	parts      []taking
}

// A taking is what a response has taken in an hour.
type taking struct{ hour, units int64 }

// pass sends bytes, and reports whether they must not pass.
func (r *running) pass(n int64) bool { return r.Cut(context.Background(), make([]byte, n)) }

// streaming begins a response under a rule that cuts its bytes.
func streaming(t testing.TB, p *policy.Policy) *running {
	t.Helper()
	var r policy.Result
	d, _, err := p.Begin(t.Context(), policy.Map{}, 1, false, -1, &r)
	if err != nil {
		t.Fatal(err)
	}
	if d == nil {
		return nil
	}
	if err := d.Header(t.Context(), 200, nil); err != nil {
		t.Fatal(err)
	}
	return &running{Pending: d}
}

// What a rule's cost is of.
const (
	bytes  = `"response": "bytes"`
	tokens = `"usage": "openai"`
)

// cutting returns a policy whose one rule cuts what is above 20 units and its limit.
func cutting(t testing.TB, of string, store stint.Store, limit, more string, o policy.Options) *policy.Policy {
	t.Helper()
	rules := made.Rules(t, `{"rules": [{"name": "r", "key": [], "limits": ["`+limit+`"], "cost": {`+of+`, "reserve": 20, "cut": true}`+more+`}]}`)
	p := made.Policy(t, store, rules, o)
	t.Cleanup(p.Close)
	return p
}

// leftOf returns what the rule has left.
func leftOf(t testing.TB, p *policy.Policy) policy.RuleResult {
	t.Helper()
	r := peek(t, p, policy.Map{})
	return r.Rules[0]
}

// events returns n events of a stream, which seem to cost a unit each.
func events(n int64) []byte {
	return []byte(strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", int(n)))
}

// saying returns the end of a stream that says its usage.
func saying(n int64) []byte {
	return fmt.Appendf(nil, "data: {\"choices\":[],\"usage\":{\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", n)
}

// TestRaise holds streams of one key to the definition: a stream that has used up its
// reservation takes as much again as at first, or what the next bytes lack, or what there is;
// where there is nothing, it ends. It costs the usage that it says, above or below what it
// seemed to cost. What is given back comes off the newest part first, in the hour of that part.
func TestRaise(t *testing.T) {
	const most = 300
	seed := rand.Uint64()
	for history := range uint64(300) {
		rnd, now, used := rand.New(rand.NewPCG(seed, history)), int64(1e18), map[int64]int64{}
		p := cutting(t, tokens, memstore.New(memstore.Options{Now: func() int64 { return now }}), "300 per hour fixed_window", "", policy.Options{})
		take := func(s *running, units int64) {
			one := taking{now / int64(time.Hour), units}
			s.parts, s.held, used[one.hour] = append(s.parts, one), s.held+units, used[one.hour]+units
		}
		var open []*running
		for step := range 60 {
			now += rnd.Int64N(int64(8 * time.Minute))
			left := max(most-used[now/int64(time.Hour)], 0)
			at := rnd.IntN(max(2*len(open), 3))
			if at >= len(open) {
				one := streaming(t, p)
				if (one != nil) != (left >= 20) {
					t.Fatalf("seed %d, %d, step %d: %d left: begins: %v", seed, history, step, left, one != nil)
				}
				if one != nil {
					take(one, 20)
					open = append(open, one)
				}
				continue
			}
			one, n, cut := open[at], rnd.Int64N(45), false
			next, cost, ends := events(n), one.cost+n, rnd.IntN(6) == 0
			if ends {
				cost = rnd.Int64N(2*one.cost + 20)
				next = saying(cost)
			}
			leaves := rnd.IntN(20) == 0
			if lacks := cost - one.held; lacks > 0 && !leaves {
				if cut = left == 0; !cut {
					take(one, min(max(20, lacks), left))
				}
			}
			switch {
			case leaves: // it costs at least what was reserved at first
				one.cost = max(one.cost, 20)
			case one.Cut(t.Context(), next) != cut:
				t.Fatalf("seed %d, %d, step %d: cut %v, want %v", seed, history, step, !cut, cut)
			case !cut:
				one.cost = cost
			}
			if !cut && !ends && !leaves {
				continue
			}
			if err := one.End(t.Context(), ends && !leaves); err != nil {
				t.Fatal(err)
			}
			used[now/int64(time.Hour)] += max(one.cost-one.held, 0)
			for i := len(one.parts) - 1; i >= 0 && one.held > one.cost; i-- {
				back := min(one.held-one.cost, one.parts[i].units)
				one.held, used[one.parts[i].hour] = one.held-back, used[one.parts[i].hour]-back
			}
			open = append(open[:at], open[at+1:]...)
			if got, want := usedOf(t, p), used[now/int64(time.Hour)]; got != want {
				t.Fatalf("seed %d, %d, step %d: %d used, want %d", seed, history, step, got, want)
			}
		}
	}
}

// TestRaiseOften: a response gives back what it has taken last, of 64 parts.
func TestRaiseOften(t *testing.T) {
	p := cutting(t, tokens, memstore.New(memstore.Options{}), "10_000 per day sliding_log", "", policy.Options{})
	one := streaming(t, p)
	for range 100 {
		if one.Cut(t.Context(), events(20)) {
			t.Fatal("cut")
		}
	}
	if one.Cut(t.Context(), saying(0)) || one.End(t.Context(), true) != nil {
		t.Fatal("cut")
	}
	if used := usedOf(t, p); used != (100-64)*20 {
		t.Errorf("%d used, want %d", used, (100-64)*20)
	}
}

// usedOf returns what the rule has used.
func usedOf(t testing.TB, p *policy.Policy) int64 {
	t.Helper()
	all, err := p.UsedOf(t.Context(), "r", "")
	if err != nil {
		t.Fatal(err)
	}
	return all[0].Used
}

// TestRaiseDenied: a raise that is denied begins no ban and is not counted.
func TestRaiseDenied(t *testing.T) {
	for _, limit := range []string{"100 per day fixed_window ban 1h", "100 per day sliding_log count_denied"} {
		p := cutting(t, bytes, memstore.New(memstore.Options{}), limit, "", policy.Options{})
		one, other := streaming(t, p), streaming(t, p)
		if one.pass(110) || one.End(t.Context(), true) != nil || other.pass(20) {
			t.Fatalf("%s: cut", limit)
		}
		if !other.pass(1) {
			t.Errorf("%s: 130 of 100 are used, and more passes", limit)
		}
		if e := leftOf(t, p); e.Banned || e.Remaining != 0 {
			t.Errorf("%s: %+v", limit, e)
		}
	}
}

// TestRaiseGone: a response whose key was reset ends, and costs nothing.
func TestRaiseGone(t *testing.T) {
	p := cutting(t, bytes, memstore.New(memstore.Options{}), "100 per day fixed_window", "", policy.Options{})
	one := streaming(t, p)
	if one.pass(30) {
		t.Fatal("cut")
	}
	var r policy.Result
	if err := p.Reset(t.Context(), policy.Map{}, &r); err != nil {
		t.Fatal(err)
	}
	if !one.pass(30) {
		t.Error("it goes on")
	}
	if err := one.End(t.Context(), false); err != nil || leftOf(t, p).Remaining != 100 {
		t.Errorf("%d left, %v", leftOf(t, p).Remaining, err)
	}
}

// TestRaiseAway: while the store fails, the rule says whether a response goes on.
func TestRaiseAway(t *testing.T) {
	for word, passes := range map[string]int64{"open": 1000, "closed": 20, "local": 100} {
		store := &broken{Store: memstore.New(memstore.Options{})}
		p := cutting(t, bytes, store, "100 per day fixed_window", `, "on_store_failure": "`+word+`"`, policy.Options{Local: memstore.New(memstore.Options{})})
		one, sent := streaming(t, p), int64(0)
		store.down.Store(true)
		for sent < 1000 && !one.pass(10) {
			sent += 10
		}
		if sent != passes {
			t.Errorf("%s: %d bytes pass, want %d", word, sent, passes)
		}
		store.down.Store(false)
		if err := one.End(t.Context(), false); err != nil && !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		for begun := time.Now(); leftOf(t, p).Remaining != max(100-passes, 0) && time.Since(begun) < 10*time.Second; {
			time.Sleep(10 * time.Millisecond)
		}
		if left := leftOf(t, p).Remaining; left != max(100-passes, 0) {
			t.Errorf("%s: %d left", word, left)
		}
	}
}

// TestCutDelivered: a response that is cut costs what has passed, however much was reserved.
func TestCutDelivered(t *testing.T) {
	p := cutting(t, bytes, memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), "40 per day fixed_window", "", policy.Options{})
	first, second := streaming(t, p), streaming(t, p)
	for i, cut := range []bool{false, false, true} { // 14 of the 20 reserved units are used
		if first.pass(7) != cut {
			t.Fatalf("piece %d of 7: cut is not %v", i+1, cut)
		}
	}
	if err := errors.Join(first.End(t.Context(), false), second.End(t.Context(), false)); err != nil {
		t.Fatal(err)
	}
	if got := leftOf(t, p).Remaining; got != 6 {
		t.Errorf("%d left of 40, want 6: 14 were delivered, and 20 reserved by one that broke off", got)
	}
}

// TestCutMissing: a stream is charged what a response without a cost costs once its client has left, not
// while it runs, nor where stint ends it.
func TestCutMissing(t *testing.T) {
	for leaves, want := range map[bool]int64{false: 100, true: 500} {
		p := cutting(t, tokens+`, "missing": 500`, memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), "100 per day fixed_window", "", policy.Options{})
		s, n := streaming(t, p), int64(0)
		for !s.Cut(t.Context(), events(1)) && !(leaves && n == 30) {
			n++
		}
		if err := s.End(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if used := usedOf(t, p); used != want || !leaves && n != 100 {
			t.Errorf("leaves %v: %d events have cost %d, want %d", leaves, n, used, want)
		}
	}
}

// TestRaiseFull: a response that must reserve more is cut where there is no room for another
// reservation, in the store or by Reserves, and costs what has passed.
func TestRaiseFull(t *testing.T) {
	for _, inStore := range []bool{true, false} {
		store := memstore.New(memstore.Options{MaxReservations: 1_000, Now: func() int64 { return 1e18 }})
		most := 2
		if inStore {
			store, most = memstore.New(memstore.Options{MaxReservations: 2, Now: func() int64 { return 1e18 }}), 1_000
		}
		p := cutting(t, bytes, store, "300 per hour fixed_window", "", policy.Options{})
		s := streaming(t, p)
		s.Reserves = func(open int) error {
			if open > most {
				return stint.ErrFull
			}
			return nil
		}
		for i, want := range []bool{false, false, true} {
			if cut := s.pass(20); cut != want {
				t.Errorf("in the store: %v: piece %d is cut: %v", inStore, i, cut)
			}
		}
		if err := s.End(t.Context(), false); err != nil {
			t.Error(err)
		}
		if left := leftOf(t, p).Remaining; left != 260 {
			t.Errorf("in the store: %v: %d left, want 260", inStore, left)
		}
	}
}

// TestReserves is told how many reservations are open: those of rules by the status, of the rules by
// the body, and of the place in a queue, until they are settled.
func TestReserves(t *testing.T) {
	rules, err := policy.Parse([]byte(`{"rules": [
		{"name": "failures", "key": [], "limits": ["100/h"], "count": {"status": 401}},
		{"name": "bytes", "key": [], "limits": ["100/h"], "cost": {"response": "bytes", "reserve": 1, "cut": true}},
		{"name": "small", "match": {"path": "/small"}, "key": [], "limits": ["1/h"]},
		{"name": "queue", "match": {"path": "/queue"}, "key": [], "limits": ["1/s burst 9 leaky_queue"]},
		{"name": "shadow", "key": [], "shadow": true, "limits": ["100/h"], "count": {"status": 401}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path  string
		most  int // that Reserves lets be open
		told  string
		fails bool
	}{
		{"/", 9, "[1 2 3 header 1 cut 2 2 end 0]", false},
		{"/", 2, "[1 2 3 header 1 cut 2 2 end 0]", false}, // the rule in shadow is passed over
		{"/", 1, "[1 2 0]", true},
		{"/", 0, "[1 0]", true},
		{"/queue", 9, "[1 2 3 4 header 1 cut 2 2 end 0]", false},
		{"/queue", 2, "[1 2 3 0]", true},
		{"/small", 9, "[1 2 3 header 1 cut 2 2 end 0]", false},
	} {
		p := made.Policy(t, memstore.New(memstore.Options{}), rules, policy.Options{})
		var told []any
		r := policy.Result{Reserves: func(open int) error {
			if told = append(told, open); open > c.most {
				return stint.ErrFull
			}
			return nil
		}}
		d, _, err := p.Begin(t.Context(), policy.Map{"path": c.path}, 1, false, 0, &r)
		if errors.Is(err, stint.ErrFull) != c.fails {
			t.Errorf("%s, %d: %v", c.path, c.most, err)
		}
		if d != nil {
			d.Reserves = r.Reserves
			told = append(told, "header")
			_ = d.Header(t.Context(), 200, nil)
			told = append(told, "cut")
			d.Cut(t.Context(), make([]byte, 2))
			told = append(told, "end")
			_ = d.End(t.Context(), true)
		}
		if fmt.Sprint(told) != c.told {
			t.Errorf("%s, %d: told %v, want %s", c.path, c.most, told, c.told)
		}
		p.Close()
	}
}
