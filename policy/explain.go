package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/wording"
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
	// Why says why it is, or why not.
	Why string
	// Key is the attributes of the key. It is empty where there is none, also
	// if one key is shared by all.
	Key []KeyPart
	// Limits are what the request is held to, or the action.
	Limits []*RuleLimit
	// Cost is what a request of cost 1 costs.
	Cost int64
	// Shadow reports whether the rule is in shadow.
	Shadow bool
	// Ends reports whether no rule after it is tried.
	Ends bool
}

// A KeyPart is one attribute of a key. The value may be a secret.
type KeyPart struct {
	Attribute, Value string
	Missing          bool
}

// Explain says for every rule whether it holds for a request, and why: for an
// operator's eyes, since it shows what the request sent. The error is a
// [RequestError].
func (r *Rules) Explain(attrs Attributes) (Explanation, error) { return r.explain(attrs, nil) }

// explain is Explain; for a policy, with what customers have of their own.
func (r *Rules) explain(attrs Attributes, by *Policy) (Explanation, error) {
	var e Explanation
	q := match.Request{Attrs: attrs}
	if err := r.ready(&q); err != nil {
		return e, err
	}
	e.Path = q.Path()
	ended := ""
	for _, one := range r.rules {
		x := RuleExplanation{Rule: one.name, Shadow: one.shadow}
		if ended != "" {
			x.Why = fmt.Sprintf("not tried: rule %s ended the matching", ended)
		} else if err := one.explain(&q, &x, by); err != nil {
			return e, err
		}
		if x.Ends {
			ended = one.name
		}
		e.Rules = append(e.Rules, x)
	}
	return e, nil
}

func (r *rule) explain(q *match.Request, x *RuleExplanation, by *Policy) (err error) {
	if !r.explainMatch(q, x) {
		return nil
	}
	var c *customers
	if by != nil {
		c = by.customers
	}
	p, _ := r.planFor(q, nil, c)
	if by != nil {
		if own := by.ownPlan(r, q); own != nil {
			p = own
		}
	}
	if p.variant != "" {
		x.Why += "; limits by " + p.variant
	}
	missing := false
	if p.id >= 0 {
		for _, a := range r.key {
			v, ok := r.keyValue(q, a)
			missing = missing || !ok
			if !ok {
				v = ""
			}
			x.Key = append(x.Key, KeyPart{Attribute: a.Name, Value: v, Missing: !ok})
		}
		if missing && r.missing == missingSkip {
			x.Why = "the key is missing, and on_missing says skip"
			return nil
		}
		if x.Cost, err = r.costOf(q); err != nil {
			return err
		}
	}
	x.Applies, x.Limits = true, p.ruleLimits
	denies := p.action == "block"
	if missing && r.missing == missingDeny {
		x.Why += "; the key is missing, and on_missing says deny"
		x.Limits, denies = []*RuleLimit{r.missingLimit}, true
	}
	x.Ends = !r.shadow && (denies || r.final || p == r.own && p.action != "")
	return nil
}

// explainMatch says whether the rule matches, and why.
func (r *rule) explainMatch(q *match.Request, x *RuleExplanation) bool {
	x.Why = "matches every request"
	var misses []string
	for _, conj := range r.match {
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
	for _, conj := range r.unless {
		if conj.Miss(q) == nil {
			x.Why = "excepted by unless: " + conj.String()
			return false
		}
	}
	return true
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
		if x.Cost > 1 {
			fmt.Fprintf(&b, "      cost %d\n", x.Cost)
		}
		if x.Shadow {
			b.WriteString("      in shadow: lets pass\n")
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
