package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// An Explanation says what rules make of one request.
type Explanation struct {
	// Path is the path as rules see it; empty if no rule looks at it.
	Path string
	// Rules has every rule, in order.
	Rules []RuleExplanation
}

// A RuleExplanation says what one rule makes of a request.
type RuleExplanation struct {
	Rule string
	// Applies reports whether the request is held to the rule.
	Applies bool
	// Why says why the rule applies, or why not.
	Why string
	// Key is the attributes of the key. It is empty if the request needs no key, or all
	// requests share one.
	Key []KeyPart
	// Limits are what the request is held to, or the action.
	Limits []*RuleLimit
	// Cost is what a request of cost 1 costs.
	Cost int64
	// Wait is how long a request may wait for room.
	Wait time.Duration
	// Finish is how long a request holds its place after its client has left.
	Finish time.Duration
	// Response is what the rule takes from the response, nil if nothing: then Cost is charged
	// until the response has said the true cost.
	Response *rulesfile.Response
	// Price has the rule's prices, nil if it has none; Times is this request's, a factor of
	// Cost and of the response's cost.
	Price *rulesfile.Price
	Times int64
	// Shadow reports whether the rule is in shadow, Quota whether by shadow: quota.
	Shadow, Quota bool
	// Ends reports whether no rule after it is tried.
	Ends bool
	// Reply says how the client is answered in other than the usual way; "" if it is not.
	Reply string
}

// A KeyPart is one attribute of a key. The value may be a secret.
type KeyPart struct {
	Attribute, Value string
	Missing          bool
}

// Explain says for every rule whether it holds a request, and why. It is for an operator's
// eyes, since it shows what the request sent. The error is a [RequestError].
func (r *Rules) Explain(attrs Attributes) (Explanation, error) {
	return (&Policy{rules: r}).Explain(attrs)
}

// Explain is [Rules.Explain] with customers' own limits and plans. It does not ask the store.
func (p *Policy) Explain(attrs Attributes) (Explanation, error) {
	var e Explanation
	q := match.NewRequest(attrs)
	if err := p.rules.ready(q); err != nil {
		return e, err
	}
	e.Path = q.Path()
	ended := ""
	for _, one := range p.rules.rules {
		x := RuleExplanation{Rule: one.Name, Shadow: one.Shadow, Quota: one.Quota, Reply: one.Reply.String()}
		if ended != "" {
			x.Why = fmt.Sprintf("not tried: rule %s ended the matching", ended)
		} else if err := p.explain(one, q, &x); err != nil {
			return e, err
		}
		if x.Ends {
			ended = one.Name
		}
		e.Rules = append(e.Rules, x)
	}
	return e, nil
}

func (p *Policy) explain(one *rule, q *match.Request, x *RuleExplanation) error {
	if !one.explainMatch(q, x) {
		return nil
	}
	h := ruleMatch{rule: one}
	holds, err := p.hold(&h, q, new(resultBuffer))
	if h.plan.variant != "" {
		x.Why += "; limits by " + h.plan.variant
	}
	for _, a := range one.Key {
		if v, ok := one.keyValue(q, a); h.plan.id >= 0 && ok {
			x.Key = append(x.Key, KeyPart{Attribute: a.Name, Value: v})
		} else if h.plan.id >= 0 {
			x.Key = append(x.Key, KeyPart{Attribute: a.Name, Missing: true})
		}
	}
	if err != nil {
		return err
	}
	if !holds {
		x.Why = "the key is missing, and on_missing says skip"
		if one.preflights && one.isPreflight(q) {
			x.Why = "a preflight, which passes where cors is set"
		}
		return nil
	}
	x.Price, x.Times = one.Cost.Price, h.price
	x.Applies, x.Cost, x.Limits, x.Ends = true, h.weight, h.plan.shown, h.ends()
	if h.plan.inFlight != nil {
		x.Wait, x.Finish = one.Wait, one.Finish
	}
	if h.limited() {
		x.Response = one.Response
	}
	if h.lacksKey() {
		x.Why += "; the key is missing, and on_missing says deny"
		x.Limits = one.missingLimits
	}
	return nil
}

func (r *rule) explainMatch(q *match.Request, x *RuleExplanation) bool {
	x.Why = "matches every request"
	var misses []string
	for _, conj := range r.Match {
		c := conj.Miss(q)
		if c == nil {
			misses, x.Why = nil, conj.String()
			break
		}
		v, ok := q.Value(c.Attribute)
		has := "the request has none"
		if ok {
			has = "it is " + strconv.Quote(wording.Shorten(v))
		}
		misses = append(misses, fmt.Sprintf("%s must be %s; %s", c.Name, strings.TrimPrefix(c.Want(), "is "), has))
	}
	if len(misses) > 0 {
		x.Why = "does not match: " + strings.Join(misses, "; or ")
		return false
	}
	for _, conj := range r.Unless {
		if conj.Miss(q) == nil {
			x.Why = "excepted by unless: " + conj.String()
			return false
		}
	}
	return true
}

func (x *RuleExplanation) writeCost(b *strings.Builder) {
	switch r := x.Response; {
	case r != nil && r.Truth() != "":
		fmt.Fprintf(b, "      cost: reserves %d, then charges the response's %s", x.Cost, r.Truth())
		if r.Missing >= 0 {
			fmt.Fprintf(b, ", or %d without it", r.Missing)
		} else if r.Estimate {
			b.WriteString(", or an estimate without it, if that is more")
		}
		if x.Price != nil {
			fmt.Fprintf(b, ", times the price by %s", x.Price.By.Name)
		}
		if r.Cut {
			b.WriteString(", and cuts it where there is no room")
		}
		b.WriteByte('\n')
	case x.Cost > 1:
		fmt.Fprintf(b, "      cost %d\n", x.Cost)
	}
	if x.Response != nil && x.Response.Count != nil {
		fmt.Fprintf(b, "      counts responses of status %s, gives others back\n", x.Response.Count)
	}
}

// String returns the explanation as lines for people, keys in clear.
func (e Explanation) String() string {
	var b strings.Builder
	if e.Path != "" {
		fmt.Fprintf(&b, "path %s\n", strconv.Quote(e.Path))
	}
	none := true
	for _, x := range e.Rules {
		mark := "no "
		if x.Applies {
			mark, none = "yes", none && x.Shadow
		}
		fmt.Fprintf(&b, "%s %s: %s\n", mark, x.Rule, x.Why)
		if !x.Applies {
			continue
		}
		for _, l := range x.Limits {
			fmt.Fprintf(&b, "      %s\n", l.Text)
		}
		if len(x.Key) > 0 {
			b.WriteString("      key")
			for _, k := range x.Key {
				if k.Missing {
					fmt.Fprintf(&b, " %s (missing)", k.Attribute)
				} else {
					fmt.Fprintf(&b, " %s=%s", k.Attribute, strconv.Quote(k.Value))
				}
			}
			b.WriteByte('\n')
		}
		x.writeCost(&b)
		if x.Wait > 0 {
			fmt.Fprintf(&b, "      waits up to %v for room\n", x.Wait)
		}
		if x.Finish > 0 {
			fmt.Fprintf(&b, "      holds its place for up to %v in stint proxy after its client has left\n", x.Finish)
		}
		switch {
		case x.Quota:
			b.WriteString("      a quota: Envoy's requests are denied where no descriptor has room\n")
		case x.Shadow:
			b.WriteString("      in shadow: lets pass\n")
		}
		if x.Reply != "" && !x.Shadow && x.Limits[0].Action != "unlimited" {
			fmt.Fprintf(&b, "      tells clients: %s\n", x.Reply)
		}
		if x.Ends {
			b.WriteString("      ends the matching\n")
		}
	}
	if none {
		b.WriteString("no rule holds this request: it passes\n")
	}
	return b.String()
}
