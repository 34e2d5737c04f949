package rulesapi_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/rulesource"
)

// TestConsequences: what an override of an operator changes is said of the limits that the customer
// has by the rules, be they of the rule, of a tier, of a plan or of an override in the file.
func TestConsequences(t *testing.T) {
	d := editing(t, `rules:
- name: api
  key: [header.x-team]
  limits: 100/m
  overrides:
  - {name: pro, when: {header.x-team: acme}, limits: [10_000/m, 1_000_000 per day in UTC]}
  - {when: {header.x-team: free}, unlimited: true}
- {name: budget, key: [header.x-team], limits: 20_000/m debt 400_000}
- {name: byip, key: [ip], limits: 100/m, overrides: [{when: {header.x-team: acme}, limits: 5/m}]}
- {name: tiers, key: [jwt.org], limits: 100/m, tiers: {by: jwt.org, plans: {held: {limits: 9 in flight}, pro: {limits: 900/m}, big: {limits: [9000/m, 10/s]}}}}
`)
	if _, err := d.SetPlan(t.Context(), "jwt.org", "initech", "big", "anna", ""); err != nil {
		t.Fatal(err)
	}
	for plan, want := range map[string]string{"pro": "", "held": "Under rule tiers, /v1/check, /auth and Envoy's protocol refuse this customer from now on, since they do not learn when a request ends."} {
		if got := d.PlanConsequences(t.Context(), "jwt.org", plan); got != want {
			t.Errorf("plan %s: %q, want %q", plan, got, want)
		}
	}
	for _, one := range []struct{ rule, key, limits, want, usual string }{
		{"api", "acme", "500/m", "these limits of override pro hold no longer: 1000000/day in UTC. It gives less than override pro: 500/1m in place of 10000/1m.", "the limits of override pro"},
		{"api", "acme", "20_000/m, 2_000_000 per day in UTC", "", "the limits of override pro"},
		{"api", "free", "500/m", "It takes the place of an override in the rules, by which the customer is unlimited.", "the limits of an override in the rules"},
		{"api", "other", "50/m", "It gives less than the rule: 50/1m in place of 100/1m.", "the rule's own limits"},
		{"api", "other", "500/m", "", "the rule's own limits"},
		{"api", "other", "500/m, 5 in flight", "These begin with nothing used, since the rule has none of that kind and period: 5 in flight. /v1/check, /auth and Envoy's protocol refuse this customer from now on, since they do not learn when a request ends.", "the rule's own limits"},
		{"budget", "other", "200_000/m", "What responses cost above what was reserved is charged down to a debt of 200000 in place of 400000: write debt 400000 to keep that.", "the rule's own limits"},
		{"budget", "other", "200_000/m debt 400_000", "", "the rule's own limits"},
		{"byip", "192.0.2.7", "500/m", "It takes the place of all limits that the customer has by tier or by an override in the rules.", "the limits by the rules"},
		{"tiers", "pro", "500/m", "It gives less than tier pro: 500/1m in place of 900/1m.", "the limits of tier pro"},
		{"tiers", "initech", "10_000/m", "these limits of tier big hold no longer: 10/1s.", "the limits of tier big"},
		{"tiers", "other", "100/m", "", "the rule's own limits"},
	} {
		o := rulesource.Override{Rule: one.rule, Key: one.key, Limits: strings.Split(one.limits, ", ")}
		if got := d.Consequences(t.Context(), o); !strings.HasSuffix(got, one.want) || one.want == "" && got != "" {
			t.Errorf("%s %s %s: %q, want %q", one.rule, one.key, one.limits, got, one.want)
		}
		if got := d.Usual(t.Context(), one.rule, one.key); got != one.usual {
			t.Errorf("%s %s: %q, want %q", one.rule, one.key, got, one.usual)
		}
	}
}
