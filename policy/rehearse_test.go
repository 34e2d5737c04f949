package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// TestOnDecision checks that OnDecision is called for each request that was decided
// on and would be charged, by any method, and for nothing else.
func TestOnDecision(t *testing.T) {
	rules := made.Rules(t, `{"rules": [{"name": "api", "match": {"path": "/api"}, "key": ["ip"], "limits": ["3/h"]}]}`)
	var told []string
	p, err := policy.New(memstore.New(memstore.Options{}), rules, policy.Options{
		OnDecision: func(by *policy.Rules, attrs policy.Attributes, cost int64, r *policy.Result) {
			name, _ := attrs.Attribute("name")
			verdict := " denied"
			if r.Decision.Allowed {
				verdict = " allowed"
			}
			if by == rules && cost == 1 {
				told = append(told, name+verdict)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	attrs := func(name string) policy.Map { return policy.Map{"path": "/api", "ip": "192.0.2.1", "name": name} }
	var r policy.Result
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.Peek(ctx, attrs("peek"), 1, &r))
	must(p.Decide(ctx, attrs("decide"), 1, &r))
	id, err := p.Reserve(ctx, attrs("reserve"), 1, time.Minute, &r)
	must(err)
	_, err = p.Cancel(ctx, id)
	must(err)
	_, err = p.Wait(ctx, attrs("wait"), 1, 0, &r)
	must(err)
	must(p.DecideAll(ctx, []policy.Request{{Attributes: attrs("one"), Cost: 1}}, &r))
	must(p.DecideAll(ctx, []policy.Request{{Attributes: attrs("two"), Cost: 1}, {Attributes: attrs("peeks"), Cost: 1, Peek: true}, {Attributes: attrs("back"), Cost: 1, Refund: true}, {Attributes: attrs("three"), Cost: 1}}, &r))
	must(p.Decide(ctx, attrs("last"), 1, &r))
	must(p.Refund(ctx, attrs("refund"), 1, &r))
	if err := p.Decide(ctx, policy.Map{"path": "/a%2fb", "name": "fault"}, 1, &r); err == nil {
		t.Error("a faulty path is decided on")
	}
	want := []string{"decide allowed", "reserve allowed", "wait allowed", "one allowed", "two denied", "three denied", "last allowed"}
	if !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}

// TestRehearse: a rehearsal has the overrides of its policy, on a store of its own, and works
// on while they change.
func TestRehearse(t *testing.T) {
	rules := made.Rules(t, `{"rules": [{"name": "api", "key": ["ip"], "limits": ["1/h"]}, {"name": "b", "key": ["ip"], "limits": ["9/h"]}]}`)
	p := made.Policy(t, memstore.New(memstore.Options{}), rules, policy.Options{OnDecision: func(*policy.Rules, policy.Attributes, int64, *policy.Result) { t.Error("told") }})
	if err := p.SetOverride("api", "192.0.2.7", policy.Override{Limits: []stint.Limit{stint.PerHour(2)}}); err != nil {
		t.Fatal(err)
	}
	q, err := p.Rehearse(memstore.New(memstore.Options{}), rules)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 { // these plans have numbers beyond those of the rehearsal
		if err := p.SetOverride("api", "192.0.2.8", policy.Override{Limits: []stint.Limit{stint.PerHour(int64(i) + 3)}}); err != nil {
			t.Fatal(err)
		}
	}
	var r policy.Result
	for ip, want := range map[string]int{"192.0.2.7": 2, "192.0.2.8": 1, "192.0.2.9": 1} {
		passed := 0
		for range 5 {
			if err := q.Decide(t.Context(), policy.Map{"ip": ip}, 1, &r); err != nil {
				t.Fatal(err)
			}
			if r.Decision.Allowed {
				passed++
			}
		}
		if passed != want {
			t.Errorf("%s: %d passed, want %d", ip, passed, want)
		}
	}
	tiered := made.Rules(t, `{"rules": [{"name": "api", "key": ["ip"], "tiers": {"by": "ip", "default": "free", "plans": {"free": "1/h", "pro": "4/h"}}}]}`)
	if err := p.SetPlan("ip", "192.0.2.10", "pro"); err != nil {
		t.Fatal(err)
	}
	if q, err = p.Rehearse(memstore.New(memstore.Options{}), tiered); err != nil {
		t.Fatal(err)
	}
	if err := q.Decide(t.Context(), policy.Map{"ip": "192.0.2.10"}, 1, &r); err != nil || r.Decision.Remaining != 3 {
		t.Errorf("a customer's plan leaves %d, %v; want 3", r.Decision.Remaining, err)
	}
	if err := p.Peek(t.Context(), policy.Map{"ip": "192.0.2.7"}, 1, &r); err != nil || r.Decision.Remaining != 2 {
		t.Errorf("the rehearsal charged the policy: %d left, %v", r.Decision.Remaining, err)
	}
}
