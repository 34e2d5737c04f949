package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// A Request is one of several that [Policy.DecideAll] answers together. Peek
// and Refund exclude each other.
type Request struct {
	// Attributes are what the rules look at. They may be nil if Limits are set.
	Attributes Attributes
	// Cost is what the rules count for it, times what each rule says.
	Cost int64
	// Peek asks whether Cost would pass, and charges nothing. If it would not, all requests
	// are denied. The default value is false.
	Peek bool
	// Refund gives Cost back to the keys, whatever becomes of the other
	// requests: an operator's act. The default value is false.
	Refund bool
	// Limits are what the request is held to in place of all rules. The default value, nil,
	// is the rules.
	Limits *CallerLimits
	// Key is the key that Limits count for.
	Key string
}

// An Answer is the answer to one [Request].
type Answer struct {
	// Allowed reports whether the limits that this request is held to would let it pass. It
	// passed only if all other requests are allowed as well.
	Allowed bool
	// Matched reports whether a rule that is not in shadow matched it. In an Answer, rules
	// with shadow: quota count as rules that are not in shadow, though they do not deny the
	// requests.
	Matched bool
	// First and Past say that its entries are Result.Rules[First:Past].
	First, Past int
	// Tightest is as in [Result], among its own entries.
	Tightest int
}

// DecideAll answers several requests by one decision: either all of them pass and are
// charged, or none is. Requests that count in one state ask for the sum of their costs: each
// is decided by its own plan, and the tightest of these plans is charged. The answer in r is
// about all of them as if they were one request; r.Answers has one for each.
//
// Refunds go first. Then requests with Peek are looked at, in a step of their own, before the
// others are charged. If a request is at fault, as [Policy.Decide] says, len(r.Answers) is
// its index, and nothing was charged. All requests together are held to at most
// [stint.MaxLimits] limits.
func (p *Policy) DecideAll(ctx context.Context, requests []Request, r *Result) error {
	p.begin(r, 1)
	r.several = true
	if len(r.Costs) > 0 {
		return errCosts
	}
	if len(requests) == 0 {
		return errors.New("policy: no request")
	}
	if len(requests) == 1 && !requests[0].Refund {
		if err := p.decideOnly(ctx, &requests[0], r); err != nil {
			return err
		}
		p.reportAll(requests, r)
		return nil
	}
	for i := range requests {
		if err := p.matchRequest(&requests[i], r); err != nil {
			return err
		}
	}
	if err := p.decide(ctx, &operation{op: meter.OpTake}, r); err != nil {
		return err
	}
	r.answer()
	p.reportAll(requests, r)
	return nil
}

func (p *Policy) reportAll(requests []Request, r *Result) {
	for i := range requests {
		if q := &requests[i]; !q.Peek && !q.Refund && q.Limits == nil {
			p.report(q.Attributes, q.Cost, r)
		}
	}
}

// decideOnly answers a single request, at the price of [Policy.Decide].
func (p *Policy) decideOnly(ctx context.Context, q *Request, r *Result) error {
	r.several, r.cost = false, q.Cost
	if err := p.matchRequest(q, r); err != nil {
		return err
	}
	op := meter.OpTake
	if q.Peek {
		op = meter.OpPeek
	}
	if err := p.decide(ctx, &operation{op: op}, r); err != nil {
		return err
	}
	r.answer()
	return nil
}

// matchRequest adds what a request is held to. Among several, a match's weight
// is its whole cost, and the request's cost is 1.
func (p *Policy) matchRequest(q *Request, r *Result) error {
	before, first := len(r.matches), len(r.Rules)
	switch {
	case q.Cost < 0:
		return stint.ErrCost
	case q.Limits != nil:
		q.Limits.addTo(q, r)
	default:
		if err := p.matchMore(q.Attributes, q.Cost, r); err != nil {
			return err
		}
	}
	for i := before; r.several && i < len(r.matches); i++ {
		h := &r.matches[i]
		high, low := bits.Mul64(uint64(h.weight), uint64(q.Cost))
		over := high != 0 || low > math.MaxInt64
		h.weight, h.part = h.cost, partTake
		switch {
		case q.Refund:
			h.part = partRefund
		case h.weight == 0:
			h.part = partFree
		case over:
			h.part = partOver
		case q.Peek:
			h.part = partPeek
		}
	}
	r.Answers = append(r.Answers, Answer{First: first, Past: len(r.Rules)})
	return nil
}

// A part says what the store is asked to do for a match among several requests. Each part is
// a step of its own.
type part uint8

const (
	partTake   part = iota // charged
	partPeek               // asked whether its cost would pass
	partAside              // not charged: a match of a tighter plan is, in the same state, for both
	partFree               // costs nothing: looked at
	partOver               // costs more than an int64 holds, and never passes
	partRefund             // given back
	partDenied             // counted, though another step has denied: all its limits count what is denied
)

// operation returns what the store does for a part where the request as a whole is asked by
// a.
func (k part) operation(a *operation) *operation {
	switch k {
	case partTake:
		return a
	case partRefund:
		return &operation{refund: true, local: a.local}
	case partDenied:
		return &operation{op: meter.OpTake, local: a.local}
	}
	return &operation{op: meter.OpPeek, local: a.local}
}

// cost is the cost that the store is asked for, in units of a match's weight.
func (k part) cost() int64 {
	switch k {
	case partFree:
		return 0
	case partOver:
		return 2 // with a weight of math.MaxInt64, more than any limit lets pass
	}
	return 1
}

func (p *Policy) runAll(ctx context.Context, a *operation, r *Result) error {
	limits := 0
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() {
			limits += len(h.plan.ruleLimits)
		}
	}
	if limits > stint.MaxLimits {
		return fmt.Errorf("policy: %w: the requests are held to %d limits together: at most %d", stint.ErrLayers, limits, stint.MaxLimits)
	}
	r.prepare()
	var retry stint.Wait
	for _, k := range [...]part{partRefund, partFree, partOver, partPeek, partAside, partTake, partDenied} {
		for r.gather(a.local, k) {
			d, err := p.step(ctx, k.operation(a), r, k.cost())
			if err != nil {
				return err
			}
			if !d.Allowed {
				r.deny(a)
				a = &operation{op: meter.OpPeek, local: a.local} // the later steps, but for denied ones, only say where their limits stand
				retry = longer(retry, d.RetryAfter)
			}
		}
	}
	for r.again(a); r.gather(a.local, partAside); { // after the charge
		if _, err := p.step(ctx, partAside.operation(a), r, 0); err != nil {
			return err
		}
	}
	d := r.joined()
	d.RetryAfter = longer(d.RetryAfter, retry) // counting the denial may have changed what limits answered
	r.conclude(d)
	return nil
}

// deny has the matches counted that are still to be charged, and whose limits all count what is
// denied.
func (r *Result) deny(a *operation) {
	for i := range r.matches {
		h := &r.matches[i]
		if h.part == partTake && h.step == 0 && h.plan.countsDenied() && a.charges() && a.ttl == 0 && !a.turn {
			h.part = partDenied
		}
	}
}

func longer(a, b stint.Wait) stint.Wait {
	if a == stint.Never || b == stint.Never {
		return stint.Never
	}
	return max(a, b)
}

// step asks the store for r.layers, and sets the entries that are about them.
func (p *Policy) step(ctx context.Context, a *operation, r *Result, cost int64) (stint.Decision, error) {
	d, err := p.decideIn(ctx, a, r, cost, false)
	if err != nil {
		return d, err
	}
	for i := range r.matches {
		h := &r.matches[i]
		if !r.asked(h) {
			continue
		}
		if first := r.first(i); first != nil {
			copy(r.answers[h.first:h.first+len(h.plan.ruleLimits)], r.answers[first.first:])
		}
		r.setResult(h)
	}
	return d, nil
}

// asked reports whether a match is asked in the step at hand.
func (r *Result) asked(h *ruleMatch) bool { return h.enforced() && h.step == r.step }

// takes reports whether a match is charged, by its own plan or by another.
func (h *ruleMatch) takes() bool {
	return h.enforced() && (h.part == partTake || h.part == partAside || h.part == partDenied)
}

// prepare decides which plan is charged for matches that share a state. A sum beyond an int64
// never passes.
func (r *Result) prepare() {
	r.step = 0
	for i := range r.matches {
		h := &r.matches[i]
		if h.step = 0; h.part == partAside || h.part == partDenied { // left from asking the store that has failed
			h.part = partTake
		}
	}
	for i := range r.matches {
		if h := &r.matches[i]; h.takes() && r.sum(h) > math.MaxInt64 {
			for j := range r.matches {
				if g := &r.matches[j]; g.takes() && r.share(g, h) {
					g.part, g.weight = partOver, math.MaxInt64
				}
			}
		}
	}
	for i := range r.matches {
		if h := &r.matches[i]; h.takes() && r.yields(i) {
			h.part = partAside
		}
	}
}

// again has the matches asked once more for which a tighter plan was charged, so that their
// answers show the charge.
func (r *Result) again(a *operation) {
	for i := range r.matches {
		if h := &r.matches[i]; h.part == partAside && a.op == meter.OpTake {
			h.step = 0
		}
	}
}

// gather puts the layers of a step into r.layers, each key under a limit once, and reports
// whether there are any. A match that shares a state with a match of another plan in this
// step waits for the next step.
func (r *Result) gather(local bool, k part) bool {
	r.step++
	r.layers = r.layers[:0]
	for i := range r.matches {
		h := &r.matches[i]
		if !h.enforced() || h.part != k || h.step > 0 {
			continue
		}
		first := r.first(i)
		if first != nil && first.plan != h.plan {
			continue
		}
		h.step = r.step
		layer := r.addLayer(local, h) // this makes room for its answers
		if first != nil {             // it is asked with first
			r.layers = r.layers[:len(r.layers)-1]
			continue
		}
		layer.Weight = int64(min(r.sum(h), math.MaxInt64))
	}
	return len(r.layers) > 0
}

// first returns the first match before r.matches[i] that counts in the same state and is in
// this step.
func (r *Result) first(i int) *ruleMatch {
	for j := range r.matches[:i] {
		if g := &r.matches[j]; r.asked(g) && r.share(g, &r.matches[i]) {
			return g
		}
	}
	return nil
}

// sum returns what all plans together ask of the state of h, in its part; refunds of
// different plans are not added.
func (r *Result) sum(h *ruleMatch) (sum uint64) {
	for j := range r.matches {
		g := &r.matches[j]
		with := g.part == h.part && g.enforced() || g.takes() && h.takes()
		if with && (h.part != partRefund || g.plan == h.plan) && r.share(g, h) {
			sum = satmath.Add(sum, uint64(g.weight))
		}
	}
	return sum
}

// yields reports whether a tighter plan is charged for r.matches[i].
func (r *Result) yields(i int) bool {
	h := &r.matches[i]
	for j := range r.matches {
		g := &r.matches[j]
		if a, b := g.plan.least(), h.plan.least(); g.plan != h.plan && (a < b || a == b && j < i) && g.takes() && r.share(g, h) {
			return true
		}
	}
	return false
}

// least is the smallest capacity of a plan's limits.
func (p *plan) least() int64 {
	least := int64(math.MaxInt64)
	for _, l := range p.limits {
		least = min(least, l.Capacity())
	}
	return least
}

// share reports whether two matches count in one state: they have the same key, and a limit
// in common.
func (r *Result) share(g, h *ruleMatch) bool {
	if g.plan == h.plan || g.key != h.key || g.plan.rule != h.plan.rule {
		return g.plan == h.plan && g.key == h.key
	}
	return r.policy.stateName(g.plan) == r.policy.stateName(h.plan) && slices.ContainsFunc(g.plan.limits, func(l stint.Limit) bool {
		return slices.ContainsFunc(h.plan.limits, func(m stint.Limit) bool { return l.ID() == m.ID() })
	})
}

func (r *Result) joined() stint.Decision {
	d := stint.Decision{Allowed: true}
	for i := range r.matches {
		h := &r.matches[i]
		if !h.enforced() {
			continue
		}
		for k := range h.plan.ruleLimits {
			one := &r.answers[h.first+k]
			d.ResetAfter = max(d.ResetAfter, one.ResetAfter)
			d.Delay = max(d.Delay, one.Delay)
			if !one.Allowed {
				d.Allowed, d.RetryAfter = false, longer(d.RetryAfter, one.RetryAfter)
			}
		}
	}
	return d
}

func (r *Result) answer() {
	for i := range r.Answers {
		one := &r.Answers[i]
		one.Allowed, one.Matched, one.Tightest = true, false, -1
		for k := one.First; k < one.Past; k++ {
			e := &r.Rules[k]
			if e.Shadow && !e.Quota {
				continue
			}
			one.Matched = true
			one.Allowed = one.Allowed && !e.Denied
			if told := e.Denied || e.Remaining >= 0; told && (one.Tightest < 0 || r.tighter(k, one.Tightest)) {
				one.Tightest = k
			}
		}
	}
}
