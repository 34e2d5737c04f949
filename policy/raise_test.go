package policy_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// A running response is one that takes more while it runs, with what the definition says it
// has taken.
type running struct {
	*policy.Pending
	held, cost int64
}

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
	return &running{Pending: d, held: 20}
}

// cutting returns a policy whose one rule cuts what is above 20 bytes and its limit.
func cutting(t testing.TB, store stint.Store, limit, more string, o policy.Options) *policy.Policy {
	t.Helper()
	rules, err := policy.Parse([]byte(`{"rules": [{"name": "r", "key": [], "limits": ["` + limit + `"], "cost": {"response": "bytes", "reserve": 20, "cut": true}` + more + `}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(store, rules, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// leftOf returns what the rule has left.
func leftOf(t testing.TB, p *policy.Policy) policy.RuleResult {
	t.Helper()
	var r policy.Result
	if err := p.Peek(t.Context(), policy.Map{}, 1, &r); err != nil {
		t.Fatal(err)
	}
	return r.Rules[0]
}

// TestRaise holds streams of one key to the definition: a stream that has used up its
// reservation takes as much again as at first, or what the next bytes lack, or what there is;
// where there is nothing, it ends.
func TestRaise(t *testing.T) {
	const most = 300
	seed := rand.Uint64()
	for history := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, history))
		p := cutting(t, memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), "300 per day fixed_window", "", policy.Options{})
		var open []*running
		taken := int64(0)
		for step := range 60 {
			switch at := rnd.IntN(max(2*len(open), 3)); {
			case at >= len(open):
				one := streaming(t, p)
				if (one != nil) != (taken+20 <= most) {
					t.Fatalf("seed %d, %d, step %d: %d taken: begins: %v", seed, history, step, taken, one != nil)
				}
				if one != nil {
					open, taken = append(open, one), taken+20
				}
			default:
				one, n, ends, cut := open[at], rnd.Int64N(45), rnd.IntN(8) == 0, false
				if lacks := one.cost + n - one.held; !ends && lacks > 0 {
					more := max(min(max(20, lacks), most-taken), 0)
					one.held, taken, cut = one.held+more, taken+more, more == 0
				}
				if !ends {
					if one.pass(n) != cut {
						t.Fatalf("seed %d, %d, step %d: cut %v, want %v", seed, history, step, !cut, cut)
					}
					if !cut {
						one.cost += n
						break
					}
				}
				whole := !cut && rnd.IntN(2) == 0
				if !whole && !cut { // at least what was reserved at first
					one.cost = max(one.cost, 20)
				}
				if err := one.End(t.Context(), whole); err != nil {
					t.Fatal(err)
				}
				taken += one.cost - one.held
				open = append(open[:at], open[at+1:]...)
			}
			if left := leftOf(t, p).Remaining; left != max(most-taken, 0) {
				t.Fatalf("seed %d, %d, step %d: %d left, want %d", seed, history, step, left, max(most-taken, 0))
			}
		}
	}
}

// TestRaiseDenied: a raise that is denied begins no ban and is not counted.
func TestRaiseDenied(t *testing.T) {
	for _, limit := range []string{"100 per day fixed_window ban 1h", "100 per day sliding_log count_denied"} {
		p := cutting(t, memstore.New(memstore.Options{}), limit, "", policy.Options{})
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
	p := cutting(t, memstore.New(memstore.Options{}), "100 per day fixed_window", "", policy.Options{})
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
		store := &away{Store: memstore.New(memstore.Options{})}
		p := cutting(t, store, "100 per day fixed_window", `, "on_store_failure": "`+word+`"`, policy.Options{Local: memstore.New(memstore.Options{})})
		one, sent := streaming(t, p), int64(0)
		store.away.Store(true)
		for sent < 1000 && !one.pass(10) {
			sent += 10
		}
		if sent != passes {
			t.Errorf("%s: %d bytes pass, want %d", word, sent, passes)
		}
		store.away.Store(false)
		if err := one.End(t.Context(), false); err != nil && !errors.Is(err, errAway) {
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
	p := cutting(t, memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), "40 per day fixed_window", "", policy.Options{})
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
