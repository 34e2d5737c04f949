package policy

import (
	"cmp"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// resultBuffer is what a Result keeps beside the answer: the rules that matched, and memory
// for the next request.
type resultBuffer struct {
	policy  *Policy
	matches []ruleMatch
	found   []int32 // candidates of the rules
	others  []int32 // candidates of a rule's overrides
	layers  []stint.Layer
	answers []stint.Decision // by index in Rules
	cost    int64            // of the request; 1 where its costs are in the weights of matches
	plain   int64            // the cost that the caller gave
	buf     []byte
	parts   []reservedPart
	blocked int           // index in Rules of the entry that denies for good, or -1
	held    time.Duration // the longest that a queue may hold the request

	several  bool      // requests were asked together
	step     int       // the number of the step in which they are asked
	inFlight bool      // a limit in flight is still to decide
	holdings []holding // of limits in flight
}

// A ruleMatch is a rule that matched.
type ruleMatch struct {
	rule    *rule
	plan    *plan
	key     string
	unit    int64 // what one unit of the request costs under the rule; 0 for nothing
	price   int64 // the factor in unit that also multiplies the cost of the response
	asked   int64 // the cost that the caller gave, plain or for this rule
	named   bool  // asked was given for this rule
	weight  int64 // what one unit of resultBuffer.cost costs
	cost    int64 // what the request costs, at most an int64
	first   int   // of its entries in Result.Rules
	fixed   bool  // it is decided without a store: its key is missing, or on_store_failure decides
	missing int   // which attribute of the key is missing, counted from 1; 0 for none
	unknown bool  // a claim cannot be known now, and the rule's on_store_failure is closed
	part    part  // what is asked for it, in a decision of several requests
	step    int   // the step in which it is asked there; 0 before
}

// limited reports whether the match has limits for the store to decide by.
func (h *ruleMatch) limited() bool { return h.plan.timed && !h.fixed }

// enforced reports whether the match takes part in the decision.
func (h *ruleMatch) enforced() bool { return h.limited() && !h.rule.Shadow }

// match fills r with the rules that hold the request.
func (p *Policy) match(attrs Attributes, cost int64, r *Result) error {
	p.begin(r, cost)
	if len(r.Costs) > 0 {
		if err := p.rules.checkCosts(r.Costs); err != nil {
			return err
		}
		r.cost = 1
	}
	return p.matchMore(attrs, cost, r)
}

func (p *Policy) begin(r *Result, cost int64) {
	// Fields are set one by one, here and where matches and entries are added: Go makes a
	// literal elsewhere and copies it, and that copy stalls on what was just written.
	r.Decision = stint.Decision{}
	r.Matched, r.ShadowDenied, r.several, r.inFlight = false, false, false, false
	r.Tightest, r.blocked, r.held = -1, -1, 0
	r.StoreError = nil
	r.Rules, r.Answers = r.Rules[:0], r.Answers[:0]
	r.policy, r.cost, r.plain = p, cost, cost
	r.matches, r.layers, r.parts, r.holdings = r.matches[:0], r.layers[:0], r.parts[:0], r.holdings[:0]
}

// matchMore adds the rules that hold a request to r.
func (p *Policy) matchMore(attrs Attributes, cost int64, r *Result) error {
	if cost < 0 {
		return stint.ErrCost
	}
	if p.rules.notReady {
		return ErrNotReady
	}
	q := match.NewRequest(attrs)
	if err := p.rules.ready(q); err != nil {
		return err
	}
	if by := interfaceOf(attrs); by != 0 && by&p.rules.seen == 0 {
		return p.matchSome(q, by, cost, r)
	}
	index, last := p.rules.index, int32(-1)
	r.found = index.Find(q, r.found)
	for _, found := range r.found {
		q.Unknown = false
		i, holds := index.Holds(found, q)
		if !holds && !q.Unknown || i == last { // or an earlier alternative of the rule's match has held
			continue
		}
		one := p.rules.rules[i]
		if !holds && one.failure != FailClosed {
			continue
		}
		last = i
		if one.Unless != nil && match.AnyOf(one.Unless, q) {
			continue
		}
		ends, err := p.addRule(r, q, one, cost)
		if err != nil {
			return cmp.Or(p.rules.faultIn(attrs), err) // what is wrong with an attribute says more than that it has no price
		}
		if ends {
			break
		}
	}
	return p.rules.faultIn(attrs)
}

// interfaceOf returns the interface by which a request came; 0 if it can give every
// attribute.
func interfaceOf(attrs Attributes) request.Interfaces {
	if one, ok := attrs.(interface{ Interface() request.Interfaces }); ok {
		return one.Interface()
	}
	return 0
}

// matchSome is matchMore for a request by an interface that cannot give every attribute that
// rules look at. The first rule that may hold and looks at such an attribute refuses the
// request; a rule in shadow is left out. It tries each rule: the index finds rules by the
// attributes that a request has.
func (p *Policy) matchSome(q *match.Request, by request.Interfaces, cost int64, r *Result) error {
	given := func(a request.Attribute) bool { return p.rules.file.Given(a)&by != 0 }
	for _, one := range p.rules.rules {
		q.Unknown = false
		holds := one.mayHold(q, given, new(Standing)) || q.Unknown && one.failure == FailClosed
		var lacks request.Attribute
		if one.seen&by == 0 { // no single interface gives all that it looks at, but together they may
			lacks = p.rules.file.NotGiven(one.Rule, by)
		}
		switch {
		case !holds:
		case lacks.Name == "":
			if ends, err := p.addRule(r, q, one, cost); ends || err != nil {
				return cmp.Or(p.rules.faultIn(q.Attrs), err)
			}
		case !one.Shadow:
			return &NotGivenError{one.Name, lacks.Name, by}
		}
	}
	return p.rules.faultIn(q.Attrs)
}

// faultIn returns what is wrong with the attributes that rules not in shadow have looked at.
func (r *Rules) faultIn(attrs Attributes) error {
	if read, ok := attrs.(interface{ Fault(*Rules) error }); ok {
		return read.Fault(r)
	}
	return nil
}

// ready brings what rules look at to one form.
func (r *Rules) ready(q *match.Request) error {
	if attribute, reason := q.Clean(&r.looks); reason != "" {
		return &RequestError{attribute, reason}
	}
	return nil
}

// addRule adds a rule that matches to the result, and reports whether it ends the
// matching.
func (p *Policy) addRule(r *Result, q *match.Request, one *rule, cost int64) (ends bool, err error) {
	// The match is built in place, and removed again if the rule does not hold: that saves a
	// copy.
	r.matches = append(r.matches, ruleMatch{})
	h := &r.matches[len(r.matches)-1]
	h.rule, h.first = one, len(r.Rules)
	holds, err := p.hold(h, q, &r.resultBuffer)
	if q.Unknown && one.failure != FailLocal {
		h.unknown = one.failure == FailClosed && !one.Shadow && h.plan.action != "unlimited"
		h.fixed, h.missing, holds, err = h.unknown, 0, h.unknown, nil
	}
	if !holds {
		r.matches = r.matches[:len(r.matches)-1]
		return false, err
	}
	if h.unit, h.asked = h.weight, cost; len(r.Costs) > 0 {
		if err := r.costByRule(h); err != nil {
			return false, err
		}
	}
	h.cost, _ = satmath.Mul(h.unit, h.asked)
	r.inFlight = r.inFlight || h.plan.inFlight != nil && !h.unknown
	denies := r.addEntries(h)
	if one.Shadow {
		r.ShadowDenied = r.ShadowDenied || denies
		return false, nil
	}
	r.Matched = true
	if denies {
		r.blocked = h.first
	} else if h.weight > 0 {
		r.held = max(r.held, h.plan.longestHold)
	}
	return h.ends(), nil
}

// hold writes into h what its rule, which matches, holds a request to, and reports whether it
// holds the request at all.
func (p *Policy) hold(h *ruleMatch, q *match.Request, r *resultBuffer) (holds bool, err error) {
	one := h.rule
	if h.plan = one.own; one.Tiers != nil || len(one.overrides) > 0 {
		h.plan = one.planFor(q, r, p.customers)
	}
	customers := p.customers.any() && one.limited()
	if h.plan.id >= 0 || customers {
		h.key, h.missing = p.key(one, q, &r.buf)
	}
	if customers && h.missing == 0 {
		if own := p.customers.find(one.Name, h.key); own != nil {
			h.plan = own
		}
	}
	if one.preflights && h.plan.action != "block" && one.isPreflight(q) {
		return false, nil
	}
	if h.plan.id < 0 {
		h.missing = 0 // what has no limits needs no key
		return true, nil
	}
	if h.missing > 0 && one.OnMissing == "skip" {
		return false, nil
	}
	h.fixed = h.lacksKey()
	h.weight, h.price, err = one.costOf(q)
	return err == nil, err
}

const requestedMethod = "header.access-control-request-method"

// isPreflight reports whether a request is a preflight, by which a browser asks before a page
// from an origin that may read denials sends its request. A preflight has no body and nothing
// that logs in: a request that has was made by another program, which could send as many as
// it likes.
func (r *rule) isPreflight(q *match.Request) bool {
	if method, _ := q.Value(request.Of("method")); method != "OPTIONS" {
		return false
	}
	asked, _ := q.Attrs.Attribute(requestedMethod)
	origin, _ := q.Attrs.Attribute("header.origin")
	if asked == "" || !r.Reply.CORS.Allows(origin) {
		return false
	}
	for _, name := range [...]string{"header.cookie", "header.authorization", "header.content-type"} {
		if _, has := q.Attrs.Attribute(name); has {
			return false
		}
	}
	body, known := q.Attrs.(interface{ HasBody() bool })
	return !known || !body.HasBody()
}

func (h *ruleMatch) lacksKey() bool { return h.missing > 0 && h.rule.OnMissing == "deny" }

// ends reports whether no rule after this one is tried.
func (h *ruleMatch) ends() bool {
	denies := h.lacksKey() || h.plan.action == "block" || h.unknown
	return !h.rule.Shadow && (denies || h.rule.Final || h.plan == h.rule.own && h.plan.action != "")
}

// addEntries adds the entries of the last match to Rules, and reports whether they deny
// for good.
func (r *Result) addEntries(h *ruleMatch) (denies bool) {
	limits := h.plan.shown
	if h.lacksKey() {
		limits = h.rule.missingLimits
	}
	for _, l := range limits {
		r.Rules = append(r.Rules, RuleResult{})
		e := &r.Rules[len(r.Rules)-1]
		e.RuleLimit, e.Cost, e.Missing, e.match = l, h.cost, h.missing > 0, len(r.matches)-1
		e.use(0, 0, 0)
		if l.inFlight != "" {
			e.Cost = h.places()
		}
		switch {
		case h.unknown:
			denies = true
			e.Denied, e.Failed, e.RetryAfter = true, FailClosed, fallback.ClosedFor
		case l.Action == "block" || l.Action == "missing":
			denies = true
			e.Denied, e.Remaining, e.RetryAfter = true, 0, stint.Never
		}
	}
	return denies
}

// limited reports whether the rule holds any client to limits, and not to an action
// alone.
func (r *rule) limited() bool { return r.Tiers != nil || r.own != nil && r.own.action == "" }

// planFor returns the plan that a request is held to: of the first override that fits, else
// of its tier, else the rule's own.
func (r *rule) planFor(q *match.Request, b *resultBuffer, c *customers) *plan {
	if len(r.overrides) > 0 {
		b.others = r.overrideIndex.Find(q, b.others)
		for _, i := range b.others {
			if k, ok := r.overrideIndex.Holds(i, q); ok {
				return r.overrides[k]
			}
		}
	}
	if r.Tiers != nil {
		return cmp.Or(r.tiers[c.tierOf(q, r.Tiers.By)], r.tierDefault, r.own)
	}
	return r.own
}

// costOf returns what one unit of a request costs, and the price that is a factor of it. If a
// value is no whole number, or has no price, the error is a [RequestError], but there is none
// where the rule is in shadow.
func (r *rule) costOf(q *match.Request) (cost, price int64, err error) {
	if cost = r.Cost.Fixed; cost == 0 {
		if cost, err = r.costBy(q); err != nil {
			return 0, 0, err
		}
	}
	if r.Cost.Price == nil {
		return cost, 1, nil
	}
	if price, err = r.priceOf(q); err == nil {
		cost, _ = satmath.Mul(cost, price)
	}
	return cost, price, err
}

// costBy returns the cost by attributes, before the price: the greatest of their values,
// times a factor, and a share for the length of the body.
func (r *rule) costBy(q *match.Request) (int64, error) {
	c := &r.Cost
	greatest, found := int64(0), false
	for _, a := range c.By {
		n, ok, err := r.number(q, a)
		if err != nil {
			return 0, err
		}
		greatest, found = max(greatest, n), found || ok
	}
	if !found {
		greatest = c.Default
	}
	if c.Times.Name != "" {
		times, ok, err := r.number(q, c.Times)
		if err != nil {
			return 0, err
		}
		if ok {
			greatest, _ = satmath.Mul(greatest, max(times, 1))
		}
	}
	if body, ok := q.Attrs.(interface{ BodyLength() int64 }); ok && c.Sent > 0 {
		n := max(body.BodyLength(), 0)
		greatest = int64(satmath.AddInt64(uint64(greatest), uint64(n/c.Sent+min(n%c.Sent, 1))))
	} else if !found && c.Times.Name == "" {
		return c.Default, nil
	}
	return min(max(greatest, c.Min), c.Max), nil
}

// number returns the value of an attribute as a whole number, and whether it has one.
func (r *rule) number(q *match.Request, a request.Attribute) (n int64, ok bool, err error) {
	v, ok := q.Value(a)
	if !ok || v == "" {
		return 0, false, nil
	}
	if n, ok = rulesfile.ParseDigits(v); !ok && !r.Shadow {
		err = &RequestError{Attribute: a.Name, Reason: "the cost is not a whole number"}
	}
	return n, ok, err
}

func (r *rule) priceOf(q *match.Request) (int64, error) {
	p := r.Cost.Price
	v, _ := q.Value(p.By)
	price, ok := p.Of(v)
	if !ok && !r.Shadow {
		return 0, &RequestError{Attribute: p.By.Name, Reason: "it has no price here: there is " + listed(p.Names)}
	}
	return max(price, 1), nil
}
