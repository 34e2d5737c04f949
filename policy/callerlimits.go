package policy

import (
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// CallerLimits are limits that do not come from rules, but from a request, say. All of them
// hold at once, for a key that the caller chooses. What keys have used belongs to the name
// that the limits are bound under. Make them with [Policy.BindCallerLimits]; they do not
// change, and outlive [Policy.Reload].
type CallerLimits struct {
	rule *rule
	plan *plan
}

// BindCallerLimits makes limits known to the store under a name, for [Request.Limits]. Each
// counts among the store's limits while you hold it: bound how many limits a client can make
// you hold. Without limits, every request is blocked. In answers, the name stands in place of
// a rule's; no rule has a name in parentheses. When the store fails, the limits decide as
// under on_store_failure: local.
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

// addTo adds the limits to a result, as a rule that matched.
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
