package policy_test

import (
	"slices"
	"testing"

	"github.com/stint-dev/stint/policy"
)

const formRules = `{"rules": [{
	"name": "api", "key": ["header.k"], "limits": ["10/h"],
	"tiers": {"by": "jwt.plan", "plans": {"pro": ["100/d", "50/h sliding_log"], "all": {"unlimited": true}, "none": {"block": true}}},
	"overrides": [{"name": "vip", "when": {"header.vip": true}, "limits": ["20/h"]}]
}]}`

// TestPlansShareAState moves a key from a rule's own limits to a tier, an override
// and a customer's own limits and back: what it has used counts under all limits of one
// algorithm and period, others start unused, and unlimited and block leave it.
func TestPlansShareAState(t *testing.T) {
	p := customerPolicy(t, formRules)
	own := policy.Map{"header.k": "a"}
	with := func(name, value string) policy.Map { return policy.Map{"header.k": "a", name: value} }
	set := func(o policy.Override) {
		if err := p.SetOverride("api", "a", o); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what   string
		before func()
		attrs  policy.Map
		want   int // how many requests pass
	}{
		{"the rule's own", nil, own, 10},
		{"unlimited", nil, with("jwt.plan", "all"), 50},
		{"block", nil, with("jwt.plan", "none"), 0},
		{"an override, 10 used of 20", nil, with("header.vip", "yes"), 10},
		{"a tier of another algorithm", nil, with("jwt.plan", "pro"), 50},
		{"the override again", nil, with("header.vip", "yes"), 0},
		{"the rule's own again", nil, own, 0},
		{"a customer's own limit, 20 used of 45", func() { set(limits(t, "45/h")) }, own, 25},
		{"another, of another algorithm", func() { set(limits(t, "57/h fixed_window")) }, own, 50},
		{"it ends", func() { set(policy.Override{}) }, own, 0},
		{"and begins again", func() { set(limits(t, "57/h fixed_window")) }, own, 7},
	} {
		if step.before != nil {
			step.before()
		}
		if n, _ := passUntilDenied(t, p, step.attrs); n != step.want {
			t.Errorf("%s: %d passed, want %d", step.what, n, step.want)
		}
	}
}

// TestQuestionsOfOneKey asks for one key of a rule by two plans in one decision: each goes
// by its own plan, for the sum, in whatever order.
func TestQuestionsOfOneKey(t *testing.T) {
	p := customerPolicy(t, formRules)
	requests := []policy.Request{
		{Attributes: policy.Map{"header.k": "a"}, Cost: 6},
		{Attributes: policy.Map{"header.k": "a", "header.vip": "yes"}, Cost: 5},
	}
	var r policy.Result
	for range 2 {
		if err := p.DecideAll(t.Context(), requests, &r); err != nil || r.Decision.Allowed || r.Rules[0].Denied == r.Rules[1].Denied {
			t.Errorf("11 of 10 and 20: %+v, %v", r.Rules, err)
		}
		slices.Reverse(requests)
	}
	requests[1].Cost = 4
	if err := p.DecideAll(t.Context(), requests, &r); err != nil || !r.Decision.Allowed || r.Rules[0].Remaining != 0 || r.Rules[1].Remaining != 10 {
		t.Errorf("10 of 10 and 20: %+v, %v", r.Rules, err)
	}
}

// TestRefundOnce refunds a key of a rule with several plans: each state gives back that
// many units, once. A reset makes every plan new to it.
func TestRefundOnce(t *testing.T) {
	p := customerPolicy(t, formRules)
	own := policy.Map{"header.k": "a"}
	if n, _ := passUntilDenied(t, p, own); n != 10 {
		t.Fatalf("%d passed", n)
	}
	if err := p.SetOverride("api", "a", limits(t, "10/h", "12/d")); err != nil {
		t.Fatal(err)
	}
	if n, _ := passUntilDenied(t, p, own); n != 0 {
		t.Errorf("a customer's own limit: %d passed", n)
	}
	if err := p.RefundKey(t.Context(), "api", "a", 2); err != nil {
		t.Fatal(err)
	}
	if n, _ := passUntilDenied(t, p, own); n != 2 {
		t.Errorf("after a refund of 2: %d passed", n)
	}
	if err := p.ResetKey(t.Context(), "api", "a"); err != nil {
		t.Fatal(err)
	}
	if n, _ := passUntilDenied(t, p, own); n != 10 {
		t.Errorf("after a reset: %d passed", n)
	}
}
