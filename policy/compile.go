package policy

import (
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// Compile makes rules of a file: it indexes them, and names the limits so that state belongs
// to them. A file may be compiled more than once.
func Compile(file *rulesfile.File) *Rules {
	r := &Rules{byName: make(map[string]*rule), file: file, seen: ^request.Interfaces(0), looks: match.Looks{FoldPath: file.IgnoresPathCase()}}
	for i, one := range file.Rules() {
		r.rules = append(r.rules, r.compile(one))
		r.byName[one.Name] = r.rules[i]
		r.seen &= r.rules[i].seen
		if i%64 == 63 { // so that requests are decided meanwhile
			runtime.Gosched()
		}
	}
	var all []match.Conjunction
	var item []int32
	for i, one := range r.rules {
		r.shadow, r.response = r.shadow || one.Shadow, r.response || one.Response != nil
		conditions := one.Match
		if conditions == nil {
			conditions = []match.Conjunction{nil}
		}
		for _, conj := range conditions {
			all, item = append(all, conj), append(item, int32(i))
		}
	}
	r.index = match.NewIndex(all, item)
	r.look()
	return r
}

func namesClaim(all []match.Conjunction) bool {
	isClaim := func(c match.Condition) bool { return c.Kind == request.Claim }
	return slices.ContainsFunc(all, func(conj match.Conjunction) bool { return slices.ContainsFunc(conj, isClaim) })
}

// claimsLast returns conjunctions with the conditions on claims at their ends, so that a
// token is verified only when all else holds. A claim is looked up in the index only where
// the conjunction has no other condition and the rule does not need to tell an unknown claim
// from a missing one.
func claimsLast(all []match.Conjunction, failure Failure) []match.Conjunction {
	if all == nil {
		return nil // every request
	}
	sorted := make([]match.Conjunction, len(all))
	for i, conj := range all {
		var first, last match.Conjunction
		for _, c := range conj {
			if c.Kind == request.Claim {
				last = append(last, c)
			} else {
				first = append(first, c)
			}
		}
		for k := range last {
			last[k].Late = len(first) > 0 || failure == FailClosed
		}
		sorted[i] = append(first, last...)
	}
	return sorted
}

// look notes which attributes rules look at.
func (r *Rules) look() {
	all, enforced := make(map[string]bool), make(map[string]bool)
	for _, one := range r.rules {
		note := func(name string) { all[name], enforced[name] = true, enforced[name] || !one.Shadow }
		for a := range one.Attributes {
			note(a.Name)
		}
		if one.preflights {
			note("method")
			note(requestedMethod)
			note("header.origin")
		}
	}
	r.attributes = slices.Sorted(maps.Keys(all))
	maps.DeleteFunc(enforced, func(_ string, is bool) bool { return !is })
	if jwt := r.file.JWT(); jwt != nil {
		for name := range enforced {
			if request.Of(name).Kind == request.Claim {
				enforced["header."+jwt.Header] = true // not in r.attributes: nothing may keep tokens
				break
			}
		}
	}
	r.enforced = slices.Sorted(maps.Keys(enforced))
	r.looks.Path, r.looks.Host = all["path"], all["host"]
	r.looks.ShadowPath, r.looks.ShadowHost = !enforced["path"], !enforced["host"]
	for _, name := range r.enforced {
		if _, line := request.Of(name).Line(); line {
			r.looks.Headers = append(r.looks.Headers, name)
		}
	}
}

func (r *Rules) compile(f *rulesfile.Rule) *rule {
	one := &rule{Rule: f, failure: failureWords[f.OnStoreFailure], seen: r.file.Seen(f)}
	if f.OnMissing == "deny" {
		one.missingLimits = []*RuleLimit{{Rule: f.Name, Label: f.Name, Text: "missing", Action: "missing", Shadow: f.Shadow, Quota: f.Quota, reply: &one.Reply}}
	}
	if namesClaim(f.Match) || namesClaim(f.Unless) {
		own := *f
		own.Match, own.Unless = claimsLast(f.Match, one.failure), claimsLast(f.Unless, one.failure)
		one.Rule = &own
	}
	one.preflights = f.Reply.CORS != nil && !slices.ContainsFunc(f.Match, namesMethod)
	if f.Own != nil {
		one.own = r.plan(one, f.Own, "", "/")
	}
	if t := f.Tiers; t != nil {
		one.tiers = make(map[string]*plan, len(t.Plans))
		for _, name := range t.Names {
			p := r.plan(one, t.Plans[name], "tier "+name, "@"+name+"/")
			if one.tiers[name] = p; t.Plans[name] == t.Default {
				one.tierDefault = p
			}
		}
	}
	r.overrides(one)
	return one
}

func namesMethod(all match.Conjunction) bool {
	return slices.ContainsFunc(all, func(c match.Condition) bool { return c.Name == "method" })
}

// overrides makes the plans of overrides. Overrides without a name share a plan if their
// limits are the same: their state belongs to the text of the limits.
func (r *Rules) overrides(one *rule) {
	if len(one.Overrides) == 0 {
		return
	}
	whens, items := make([]match.Conjunction, len(one.Overrides)), make([]int32, len(one.Overrides))
	byText := make(map[string]*plan)
	for k := range one.Overrides {
		o := &one.Overrides[k]
		whens[k], items[k] = o.When, int32(k)
		var p *plan
		switch {
		case o.Name != "":
			p = r.plan(one, o.Plan, "override "+o.Name, "!"+o.Name+"/")
		case o.Plan.Action != "":
			p = r.plan(one, o.Plan, "override", "=")
		default:
			text := textOf(o.Plan.Limits)
			if p = byText[text]; p == nil {
				p = r.plan(one, o.Plan, "override", "="+text)
				byText[text] = p
			}
		}
		one.overrides = append(one.overrides, p)
	}
	one.overrideIndex = match.NewIndex(whens, items)
}

// plan makes a plan of a rule. Its name is the rule's name with what sets the plan apart.
func (r *Rules) plan(one *rule, f *rulesfile.Plan, variant, mark string) *plan {
	p := newPlan(one, strings.TrimSuffix(one.Name+mark, "/"), variant, f.Action, f.Limits)
	if p.id == 0 {
		p.id = len(r.plans)
		r.plans = append(r.plans, p)
	}
	return p
}

// newPlan makes a plan of limits or of an action, which is not in Rules.plans yet.
func newPlan(r *rule, name, variant, action string, limits []stint.Limit) *plan {
	p := &plan{name: name, rule: r.Name, mode: r.Mode, variant: variant, action: action, all: limits}
	if action != "" {
		p.id = -1
		p.ruleLimits = []*RuleLimit{{Rule: r.Name, Label: r.Name, Variant: variant, Text: action, Action: action, Shadow: r.Shadow, Quota: r.Quota, reply: &r.Reply}}
	}
	for _, l := range limits {
		label := r.Name
		if len(limits) > 1 {
			label += "/" + l.Label()
		}
		one := &RuleLimit{Rule: r.Name, Label: label, Variant: variant, Limit: l, capacity: l.Capacity(), Text: l.String(), Shadow: r.Shadow, Quota: r.Quota, reply: &r.Reply}
		if l.InFlight() {
			one.inFlight = stint.InFlightName(r.Name, l)
			p.inFlight = append(p.inFlight, one)
			continue
		}
		p.ruleLimits = append(p.ruleLimits, one)
	}
	if p.limits = limits; p.inFlight != nil {
		p.limits = slices.DeleteFunc(slices.Clone(limits), stint.Limit.InFlight)
	}
	p.timed, p.longestHold = len(p.limits) > 0, heldBy(p.limits)
	if p.shown = p.ruleLimits; p.inFlight != nil {
		p.shown = slices.Concat(p.ruleLimits, p.inFlight)
	}
	return p
}

// textOf returns a text of at most 128 bytes that identifies limits.
func textOf(limits []stint.Limit) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		if texts[i] = l.String(); l != l.WithName("") {
			texts[i] += " as " + l.ID()
		}
	}
	text := strings.Join(texts, ", ")
	if len(text) > 128 {
		return digest(text)
	}
	return text
}
