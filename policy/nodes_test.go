package policy_test

import (
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

// TestSetNodes changes the share of limits that are bound, that a reload brings, and that
// callers give, both on the policy before a reload and on the one after it. What keys have
// used counts on.
func TestSetNodes(t *testing.T) {
	store := newBroken()
	p := made.Policy(t, store, parse(t, `{"name": "a", "key": ["ip"], "limits": ["12/h fixed_window"]}`), policy.Options{})
	defer p.Close()
	given, err := p.BindCallerLimits("(given)", stint.PerHour(12).WithAlgorithm(meter.FixedWindow).WithName("(given)"))
	if err != nil {
		t.Fatal(err)
	}
	store.down.Store(true)
	decideN(t, p, policy.Map{"ip": "192.0.2.1"}, 2)
	if err := p.SetNodes(3); err != nil {
		t.Fatal(err)
	}
	if n := passes(t, p, policy.Map{"ip": "192.0.2.1"}); n != 2 {
		t.Errorf("%d passed, want 4 − 2", n)
	}
	next, err := p.Reload(parse(t, `{"name": "a", "key": ["ip"], "limits": ["24/h fixed_window"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if n := passes(t, next, policy.Map{"ip": "192.0.2.2"}); n != 8 {
		t.Errorf("%d passed after a reload, want 24 / 3", n)
	}
	if err := p.SetNodes(2); err != nil { // p is the policy before the reload
		t.Fatal(err)
	}
	if n := passes(t, next, policy.Map{"ip": "192.0.2.3"}); n != 12 {
		t.Errorf("%d passed, want 24 / 2", n)
	}
	passed := 0
	for range 12 {
		var r policy.Result
		if err := next.DecideAll(t.Context(), []policy.Request{{Cost: 1, Limits: given, Key: "k"}}, &r); err != nil {
			t.Fatal(err)
		}
		if r.Decision.Allowed {
			passed++
		}
	}
	if passed != 6 {
		t.Errorf("%d passed what was given, want 12 / 2", passed)
	}
	alone := made.Policy(t, memstore.New(memstore.Options{}), parse(t, owing), policy.Options{})
	if err := alone.SetNodes(3); err != nil {
		t.Error(err)
	}
	if n := passes(t, alone, policy.Map{"ip": "192.0.2.1"}); n != 10 {
		t.Errorf("%d passed in memory, where nothing is shared: want 10", n)
	}
}
