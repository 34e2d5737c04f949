package policy

import (
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// CallerLimits are limits that do not come from rules: those that a request
// brings along, say. They are held all at once, for a key that the caller
// chooses, and what keys have used belongs to their names. Make them with
// [Policy.BindCallerLimits]; they do not change, and outlive [Policy.Reload].
type CallerLimits struct {
	rule *rule
	plan *plan
}

// BindCallerLimits makes limits known to the store under a name, for
// [Request.Limits]. Each is a limit of the store while you hold it: bound how many
// a client can make you hold. No limits are a block. The name stands for the
// rule's in answers; no rule has one in parentheses. When the store fails, they do
// as on_store_failure: local.
func (p *Policy) BindCallerLimits(name string, limits ...stint.Limit) (*CallerLimits, error) {
	g := &CallerLimits{rule: &rule{Rule: &rulesfile.Rule{Name: name, Mode: strict}, failure: FailLocal}}
	action := ""
	if len(limits) == 0 {
		action = "block"
	}
	g.plan = newPlan(g.rule, name, "", action, limits)
	if len(g.plan.inFlight) > 0 {
		return nil, fmt.Errorf("policy: limit %q: %w", g.plan.inFlight[0].Text, stint.ErrInFlight)
	}
	var err error
	if g.plan.pair, err = p.pair(g.plan); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return g, nil
}

// addTo adds the limits to a result.
func (g *CallerLimits) addTo(q *Request, r *Result) {
	r.matches = append(r.matches, ruleMatch{rule: g.rule, plan: g.plan, key: q.Key, unit: 1, asked: q.Cost, weight: 1, cost: q.Cost, first: len(r.Rules)})
	h := &r.matches[len(r.matches)-1]
	if len(h.key) > plainKey || h.key != "" && h.key[0] == hashMark {
		h.key = r.policy.hashed(h.key)
	}
	if r.addEntries(h) {
		r.blocked = h.first
	}
	r.Matched = true
}
