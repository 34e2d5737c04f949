package policy

import (
	"runtime"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// Compile makes rules of a file: it indexes them, and names the limits that
// state belongs to. A file may be compiled more than once.
func Compile(file *rulesfile.File) *Rules {
	r := &Rules{file: file, looks: match.Looks{FoldPath: file.IgnoresPathCase()}}
	for i, one := range file.Rules() {
		r.rules = append(r.rules, r.compile(one))
		if i%64 == 63 { // requests are decided meanwhile
			runtime.Gosched()
		}
	}
	var all []match.Conjunction
	var item []int32
	for i, one := range r.rules {
		r.shadow, r.response = r.shadow || one.shadow, r.response || one.response != nil
		r.look(one)
		conditions := one.match
		if conditions == nil {
			conditions = []match.Conjunction{nil}
		}
		for _, conj := range conditions {
			all, item = append(all, conj), append(item, int32(i))
		}
	}
	r.index = match.NewIndex(all, item)
	return r
}

// look notes what a rule looks at.
func (r *Rules) look(one *rule) {
	l := &r.looks
	for name := range one.attributes {
		l.Path, l.Host = l.Path || name == "path", l.Host || name == "host"
		r.body = r.body || strings.HasPrefix(name, "body.")
		if strings.HasPrefix(name, "header.") && name != "header.host" && !slices.Contains(l.Headers, name) {
			l.Headers = append(l.Headers, name)
		}
	}
}

// compile makes a rule.
func (r *Rules) compile(f *rulesfile.Rule) *rule {
	one := &rule{
		match: f.Match, unless: f.Unless, key: f.Key, cost: f.Cost, response: f.Response,
		shadow: f.Shadow, final: f.Final, hashKey: f.HashKey,
		missing: missingWords[f.OnMissing], failure: failureWords[f.OnStoreFailure], mode: f.Mode,
		ipv4: f.IPv4Prefix, ipv6: f.IPv6Prefix,
		wait: f.Wait, name: f.Name, line: f.Line, column: f.Column,
		missingLimits: []*RuleLimit{{Rule: f.Name, Label: f.Name, Text: "missing", Action: "missing", Shadow: f.Shadow, reply: &f.Reply}},
		reply:         &f.Reply,
	}
	if f.Reply.CORS != nil && !slices.ContainsFunc(f.Match, namesMethod) {
		one.unless, one.preflight = append(one.unless[:len(one.unless):len(one.unless)], preflight), true
	}
	if f.Own != nil {
		one.own = r.plan(one, f.Own, "", "/")
	}
	if t := f.Tiers; t != nil {
		one.tiers = &tiers{by: t.By, names: t.Names, plans: make(map[string]*plan, len(t.Plans))}
		for _, name := range t.Names {
			p := r.plan(one, t.Plans[name], "tier "+name, "@"+name+"/")
			if one.tiers.plans[name] = p; t.Plans[name] == t.Default {
				one.tiers.def = p
			}
		}
	}
	r.overrides(one, f.Overrides)
	return one
}

// preflight is what a browser asks before a page's request to another origin.
var preflight = func() match.Conjunction {
	method := match.Condition{Attribute: match.AttributeOf("method"), Text: "OPTIONS"}
	method.Add("OPTIONS")
	return match.Conjunction{method, {Attribute: match.AttributeOf("header.access-control-request-method"), Present: true, Text: "true"}}
}()

func namesMethod(all match.Conjunction) bool {
	return slices.ContainsFunc(all, func(c match.Condition) bool { return c.Name == "method" })
}

// overrides makes the plans of overrides. Those without a name share a plan if
// their limits are the same: state belongs to the text.
func (r *Rules) overrides(one *rule, all []rulesfile.Override) {
	whens, items := make([]match.Conjunction, len(all)), make([]int32, len(all))
	byText := make(map[string]*plan)
	for k := range all {
		o := &all[k]
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
		one.overrides = append(one.overrides, override{when: o.When, plan: p, line: o.Line, column: o.Column})
	}
	one.overrideIndex = match.NewIndex(whens, items)
}

// plan makes a plan of a rule that the file has. The name of its limits is the rule's
// with what sets the plan apart.
func (r *Rules) plan(one *rule, f *rulesfile.Plan, variant, mark string) *plan {
	p := newPlan(one, strings.TrimSuffix(one.name+mark, "/"), variant, f.Action, f.Limits)
	if p.id == 0 {
		p.id = len(r.plans)
		r.plans = append(r.plans, p)
	}
	return p
}

// newPlan makes a plan of limits, or of an action.
func newPlan(r *rule, name, variant, action string, limits []stint.Limit) *plan {
	p := &plan{name: name, rule: r.name, mode: r.mode, variant: variant, action: action, all: limits}
	if action != "" {
		p.id = -1
		p.ruleLimits = []*RuleLimit{{Rule: r.name, Label: r.name, Variant: variant, Text: action, Action: action, Shadow: r.shadow, reply: r.reply}}
	}
	for _, l := range limits {
		label := r.name
		if len(limits) > 1 {
			label += "/" + l.Label()
		}
		one := &RuleLimit{Rule: r.name, Label: label, Variant: variant, Limit: l, Text: l.String(), Shadow: r.shadow, reply: r.reply}
		if l.InFlight() {
			one.inFlight = stint.InFlightName(r.name, l)
			p.inFlight = append(p.inFlight, one)
			continue
		}
		p.ruleLimits, p.limits = append(p.ruleLimits, one), append(p.limits, l)
	}
	p.timed, p.longestHold = len(p.limits) > 0, heldBy(p.limits)
	p.shown = slices.Concat(p.ruleLimits, p.inFlight)
	return p
}

// textOf identifies limits, in at most 128 bytes.
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
