package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/policy"
)

const planRules = `{"rules": [
	{"name": "api", "key": ["header.x-api-key"], "tiers": {"by": "jwt.org", "default": "free", "plans": {"free": "2/h", "pro": "20/h", "staff": {"unlimited": true}}}},
	{"name": "files", "key": ["ip"], "limits": ["30/h"], "tiers": {"by": "jwt.org", "plans": {"pro": "40/h"}}},
	{"name": "other", "key": ["ip"], "tiers": {"by": "jwt.plan", "default": "a", "plans": {"a": "50/h"}}}
]}`

// held returns the limits that hold a request of an organization.
func held(t *testing.T, p *policy.Policy, org string) string {
	t.Helper()
	var r policy.Result
	attrs := policy.Map{"header.x-api-key": "k-" + org, "ip": "192.0.2.1", "jwt.org": org}
	if err := p.Peek(t.Context(), attrs, 1, &r); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, one := range r.Rules {
		texts = append(texts, one.Text)
	}
	x, err := p.Explain(attrs)
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range x.Rules {
		if one.Limits[0].Text != texts[i] {
			t.Errorf("%s: explained as %s, decided by %s", org, one.Limits[0].Text, texts[i])
		}
	}
	return strings.Join(texts, " ")
}

// TestPlans moves a customer from plan to plan.
func TestPlans(t *testing.T) {
	p := customerPolicy(t, planRules)
	check := func(what, org, want string) {
		t.Helper()
		if got := held(t, p, org); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	set := func(attribute, value, plan string) {
		t.Helper()
		if err := p.SetPlan(attribute, value, plan); err != nil {
			t.Fatal(err)
		}
	}
	check("without one", "acme", "2/1h 30/1h 50/1h")
	set("jwt.org", "acme", "pro")
	set("jwt.plan", "acme", "x") // a plan by another attribute
	check("pro", "acme", "20/1h 40/1h 50/1h")
	check("another organization", "beta", "2/1h 30/1h 50/1h")
	set("jwt.org", "acme", "staff")
	check("staff, which one rule does not have", "acme", "unlimited 30/1h 50/1h")
	set("jwt.org", "acme", "gone")
	check("a plan that there is not", "acme", "2/1h 30/1h 50/1h")
	set("jwt.org", "pro", "free")
	check("a value that is a plan's name, and has another", "pro", "2/1h 30/1h 50/1h")
	set("jwt.org", "pro", "")
	check("a value that names a plan", "pro", "20/1h 40/1h 50/1h")
	r := p.ReplaceOverrides()
	if err := r.SetPlan("jwt.org", "beta", "pro"); err != nil {
		t.Fatal(err)
	}
	check("before a replacement", "beta", "2/1h 30/1h 50/1h")
	if err := r.Commit(); err != nil {
		t.Fatal(err)
	}
	check("after a replacement", "beta", "20/1h 40/1h 50/1h")
	check("after a replacement without it", "acme", "2/1h 30/1h 50/1h")
	if got := fmt.Sprint(p.Rules().Plans("jwt.org"), p.Rules().Plans("ip"), p.Rules().TierAttributes()); got != "[free pro staff] [] [jwt.org jwt.plan]" {
		t.Error(got)
	}
}
