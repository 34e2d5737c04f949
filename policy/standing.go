package policy

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/meter"
)

// A Standing says how a key stands under one rule. Asking for it charges nothing.
type Standing struct {
	Rule string
	// Key is the key as stores have it, which may hold what clients sent; Hash is
	// the key as logs have it.
	Key, Hash string
	// Why names the conditions of the rule that the attributes meet.
	Why string
	// Where has the conditions on attributes that were not given: the rule holds only if they
	// are met as well.
	Where []string
	// Shadow reports whether the rule is in shadow, Ends whether no rule after it is tried,
	// Missing whether an attribute of the key is missing, so that all such requests share the
	// key.
	Shadow, Ends, Missing bool
	// Own reports whether the limits are the key's own, from an [Override], and Idle whether
	// the key has one that does nothing, since the rule has no limits.
	Own, Idle bool
	// Limits has the answer of each limit to a request of cost 1, and one entry for an
	// action. Remaining is what is left before that request.
	Limits []RuleResult
	// Err is why the store could not answer; the rule's on_store_failure did instead.
	Err error
}

// A LeftOut is a rule that may hold, but whose key cannot be made.
type LeftOut struct {
	Rule string
	// Missing are the attributes of the key that were not given.
	Missing []string
}

// mostStandings is how many rules one call looks at: thousands may hold for one client.
const mostStandings = 1000

// Standings says how a client of whom some attributes are known stands under every rule that
// may hold for it, in order. A condition on an attribute that is not given is left open.
// Rules that the attributes contradict are not listed, nor those behind a rule that ends the
// matching. left are the rules whose key has an attribute that is not given. more reports
// whether there are rules beyond the first thousand. The error is a [RequestError], or the
// store's where the rules do not say what to do then. Nothing is charged.
//
// Price: a decision for each 64 limits.
func (p *Policy) Standings(ctx context.Context, attrs Attributes) (all []Standing, left []LeftOut, more bool, err error) {
	if p.rules.notReady {
		return nil, nil, false, ErrNotReady
	}
	q := match.NewRequest(attrs)
	if err := p.rules.ready(q); err != nil {
		return nil, nil, false, err
	}
	if _, given := attrs.Attribute("ip"); given {
		if _, ok := q.Addr(); !ok {
			return nil, nil, false, &RequestError{Attribute: "ip", Reason: "not an address"}
		}
	}
	known := given(attrs)
	l := looking{p: p, ctx: ctx}
	for _, one := range p.rules.rules {
		s := Standing{Rule: one.Name, Shadow: one.Shadow}
		if !one.mayHold(q, known, &s) {
			continue
		}
		missing := one.unknownKey(q)
		if len(missing) == 0 {
			missing = p.unknownPlan(one, q, known)
		}
		if len(missing) > 0 {
			left = append(left, LeftOut{one.Name, missing})
			continue
		}
		if len(l.all) == mostStandings {
			more = true
			break
		}
		ends, err := l.add(one, q, s)
		if err != nil {
			return nil, nil, false, err
		}
		if ends {
			break
		}
	}
	return l.all, left, more, l.flush()
}

func given(attrs Attributes) func(request.Attribute) bool {
	return func(a request.Attribute) bool {
		_, given := attrs.Attribute(a.Name)
		return given
	}
}

// LimitsOf returns the limits, or the action, that a rule has for requests with some attributes:
// those of an override in the file, of a tier, or the rule's own. tier is the name of the tier, or
// "" for the value of the attribute. There are none if an attribute that is not given decides.
func (r *Rules) LimitsOf(name string, attrs Attributes, tier string) []*RuleLimit {
	one, err := r.rule(name)
	q := match.NewRequest(attrs)
	if err != nil || r.ready(q) != nil || len(one.unknownPlan(q, given(attrs))) > 0 {
		return nil
	}
	p := one.planFor(q, new(resultBuffer), nil)
	if tier != "" && !strings.HasPrefix(p.variant, ownVariant) {
		p = cmp.Or(one.tiers[tier], one.tierDefault, one.own)
	}
	return p.shown
}

// UsedOf says how a key stands under every limit that a rule may hold it to, in force or not:
// those of the rule, its tiers and its overrides, and the key's own. The error is
// [ErrNoRule], or the store's.
func (p *Policy) UsedOf(ctx context.Context, name, key string) ([]RuleResult, error) {
	l := looking{p: p, ctx: ctx}
	err := p.byKey(name, key, func(h *ruleMatch) error {
		h.cost = 1
		l.addMatch(*h, Standing{})
		return l.flush() // one plan at a time: several may share a state
	})
	if err == nil {
		err = l.flush()
	}
	var all []RuleResult
	for _, s := range l.all {
		if all = append(all, s.Limits...); err == nil {
			err = s.Err
		}
	}
	return all, err
}

// mayHold reports whether the rule holds, or may hold because not all attributes are known,
// and writes Why and Where of s.
func (r *rule) mayHold(q *match.Request, known func(request.Attribute) bool, s *Standing) bool {
	s.Why = "matches every request"
	if r.Match != nil {
		var open []string
		met := false
		for _, conj := range r.Match {
			switch unknown, ok := judge(conj, q, known); {
			case !ok:
			case unknown == nil:
				met, s.Why = true, conj.String()
			default:
				open = append(open, unknown.String())
			}
		}
		if !met && open == nil {
			return false
		}
		if !met {
			s.Why, s.Where = "may match", []string{strings.Join(open, ", or ")}
		}
	}
	for _, conj := range r.Unless {
		unknown, ok := judge(conj, q, known)
		if ok && unknown == nil {
			return false
		}
		if ok {
			s.Where = append(s.Where, "not ("+unknown.String()+")")
		}
	}
	return true
}

// judge reports whether the conditions on known attributes hold, and returns the others.
func judge(c match.Conjunction, q *match.Request, known func(request.Attribute) bool) (unknown match.Conjunction, ok bool) {
	for i := range c {
		if !known(c[i].Attribute) {
			unknown = append(unknown, c[i])
		} else if !c[i].Match(q) {
			return nil, false
		}
	}
	return unknown, true
}

func (r *rule) unknownKey(q *match.Request) (missing []string) {
	for _, a := range r.Key {
		if _, known := q.Attrs.Attribute(a.Name); !known {
			missing = append(missing, a.Name)
		}
	}
	return missing
}

// unknownPlan returns the attributes that are not given and may choose another plan of the rule.
func (p *Policy) unknownPlan(r *rule, q *match.Request, known func(request.Attribute) bool) (missing []string) {
	if key, lacks := p.key(r, q, new([]byte)); lacks == 0 && p.customers.find(r.Name, key) != nil {
		return nil
	}
	return r.unknownPlan(q, known)
}

func (r *rule) unknownPlan(q *match.Request, known func(request.Attribute) bool) (missing []string) {
	for i := range r.Overrides {
		unknown, ok := judge(r.Overrides[i].When, q, known)
		if ok && unknown == nil {
			return missing
		}
		for k := range unknown {
			missing = append(missing, unknown[k].Name)
		}
	}
	if r.Tiers != nil && !known(r.Tiers.By) {
		missing = append(missing, r.Tiers.By.Name)
	}
	return missing
}

// looking asks about the limits of many rules, as many at once as a store takes.
type looking struct {
	p       *Policy
	ctx     context.Context
	all     []Standing
	room    resultBuffer
	result  Result
	waiting int // how many at the end of all have not been asked about yet
	limits  int // how many limits these have
}

// add looks at a rule, and reports whether it ends the matching for certain.
func (l *looking) add(one *rule, q *match.Request, s Standing) (ends bool, err error) {
	h := ruleMatch{rule: one}
	holds, err := l.p.hold(&h, q, &l.room)
	if errors.Is(err, ErrRequest) { // only its cost cannot be known
		h.weight = 1
	} else if !holds {
		return false, err
	}
	if h.plan.id < 0 {
		h.key, _ = l.p.key(one, q, &l.room.buf)
	}
	h.cost = h.weight
	if own := l.p.customers.find(one.Name, h.key); own != nil {
		s.Own, s.Idle = own == h.plan, !one.limited()
	}
	s.Key, s.Hash, s.Missing, s.Ends = h.key, l.p.KeyHash(one.Name, h.key), h.missing > 0, h.ends()
	if l.limits+len(h.plan.shown) > stint.MaxLimits {
		if err := l.flush(); err != nil {
			return false, err
		}
	}
	l.addMatch(h, s)
	return s.Ends && len(s.Where) == 0, nil
}

func (l *looking) addMatch(h ruleMatch, s Standing) {
	r := &l.result
	if l.waiting == 0 {
		l.p.begin(r, 1)
	}
	h.first = len(r.Rules)
	r.matches = append(r.matches, h)
	r.addEntries(&h)
	l.all, l.waiting, l.limits = append(l.all, s), l.waiting+1, l.limits+len(r.Rules)-h.first
}

// flush asks about the matches that wait, and writes the answers into their Standings.
func (l *looking) flush() error {
	if l.waiting == 0 {
		return nil
	}
	r, peek := &l.result, &operation{op: meter.OpPeek}
	r.Decision.Allowed = true
	if err := l.p.run(l.ctx, peek, r); err != nil {
		if err = l.withoutStore(peek, err); err != nil {
			return err
		}
	}
	l.p.shadows(l.ctx, peek, r)
	l.p.look(l.ctx, r)
	l.p.above(l.ctx, r)
	for i := range r.matches {
		h, s := &r.matches[i], &l.all[len(l.all)-l.waiting+i]
		past := len(r.Rules)
		if i+1 < len(r.matches) {
			past = r.matches[i+1].first
		}
		s.Limits = append(s.Limits, r.Rules[h.first:past]...)
		if h.limited() || s.Limits[0].Failed != NotFailed {
			s.Err = r.StoreError
		}
	}
	l.waiting, l.limits = 0, 0
	return nil
}

// withoutStore has each match that waits decided by its own on_store_failure, since the store failed
// with why. Together the strictest would decide for all, and they need not hold one request.
func (l *looking) withoutStore(peek *operation, why error) error {
	r, alone := &l.result, new(Result)
	for i := range r.matches {
		h := &r.matches[i]
		l.p.begin(alone, 1)
		alone.matches = append(alone.matches, *h)
		one := &alone.matches[0]
		one.first = 0
		alone.addEntries(one)
		if err := l.p.failed(l.ctx, peek, alone, why); err != nil {
			return err
		}
		h.fixed = one.fixed
		for k, e := range alone.Rules {
			e.match = i
			r.Rules[h.first+k] = e
		}
	}
	r.StoreError = why
	return nil
}

// above completes Used of the entries that have nothing remaining.
func (p *Policy) above(ctx context.Context, r *Result) {
	for i := range r.matches {
		h := &r.matches[i]
		if !h.limited() {
			continue
		}
		for k, l := range h.plan.limits {
			e := &r.Rules[h.first+k]
			if e.Remaining != 0 || e.Failed != NotFailed {
				continue
			}
			state := stint.Decision{Limit: l.Capacity(), ResetAfter: e.ResetAfter}
			used, err := fallback.InUse(l, l, state, func(as stint.Limit) (d stint.Decision, err error) {
				b, err := p.main.Bind(p.stateName(h.plan), as)
				if err == nil {
					d, err = b.Decide(ctx, meter.OpPeek, h.key, 0)
				}
				return d, err
			})
			if err == nil { // the store keeps that number
				e.Used = used
			}
		}
	}
}

// stand writes into r how the key of a match stands, by one decision that charges nothing.
func (p *Policy) stand(ctx context.Context, h *ruleMatch, r *Result) error {
	p.begin(r, 0)
	r.matches = append(r.matches, *h)
	one := &r.matches[0]
	one.cost, one.weight, one.first = 0, 0, 0
	r.addEntries(one)
	if err := p.run(ctx, &operation{op: meter.OpPeek}, r); err != nil {
		return err
	}
	p.above(ctx, r)
	return nil
}
