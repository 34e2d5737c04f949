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
	// Attributes are what the rules look at. They may be nil where Limits is
	// there.
	Attributes Attributes
	// Cost is what the rules count for it, times what each rule says.
	Cost int64
	// Peek asks whether Cost would pass, and is not charged. What it denies
	// denies all. The default value is false.
	Peek bool
	// Refund gives Cost back to the keys, whatever becomes of the other
	// requests: an operator's act. The default value is false.
	Refund bool
	// Limits are those to hold it to in place of all rules. The default value,
	// nil, is the rules.
	Limits *CallerLimits
	// Key is whom Limits count for.
	Key string
}

// An Answer is what is said to one [Request].
type Answer struct {
	// Allowed reports whether the limits that the request is held to would let
	// it pass. It passed only if all others are allowed as well.
	Allowed bool
	// Matched reports whether a rule that is not in shadow matched it. Rules with shadow:
	// quota count here as others do, though they do not deny all.
	Matched bool
	// First and Past are where its entries in Result.Rules begin and end.
	First, Past int
	// Tightest is as in [Result], of its own entries.
	Tightest int
}

// DecideAll answers several requests by one decision: it passes when all
// pass, and then all are charged; else none is. Requests that count in one state ask for
// the sum of their costs: each goes by its own plan, and the tightest of these is charged.
// The answer in r is about all of them as if they were one request, and r.Answers about each.
//
// What is given back goes first; what only asks is looked at before the others
// are charged, in a step of its own. If a request is at fault, as [Policy.Decide]
// says, len(r.Answers) is its number, and nothing was charged. All
// requests together are held to [stint.MaxLimits] limits at most.
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

// reportAll calls OnDecision for each request that was to be charged.
func (p *Policy) reportAll(requests []Request, r *Result) {
	for i := range requests {
		if q := &requests[i]; !q.Peek && !q.Refund && q.Limits == nil {
			p.report(q.Attributes, q.Cost, r)
		}
	}
}

// decideOnly answers a single request, at the price of any other.
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

// A part is what is asked of the store for a match among several requests. Each
// part is one step of the store.
type part uint8

const (
	partTake   part = iota // what the request asks for
	partPeek               // looked at, for its cost
	partAside              // takes in a state where one of a tighter plan is charged for all
	partFree               // looked at, and lets pass
	partOver               // costs more than an int64, and never passes
	partRefund             // given back
)

// operation returns what is done for the part of a match, where a request takes.
func (k part) operation(a *operation) *operation {
	switch k {
	case partTake:
		return a
	case partRefund:
		return &operation{refund: true, local: a.local}
	}
	return &operation{op: meter.OpPeek, local: a.local}
}

// cost is what the store is asked, in units of a match's weight.
func (k part) cost() int64 {
	switch k {
	case partFree:
		return 0
	case partOver:
		return 2 // times a weight of all that an int64 holds
	}
	return 1
}

// runAll decides for the enforced matches of several requests in one store.
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
	for _, k := range [...]part{partRefund, partFree, partOver, partPeek, partAside, partTake} {
		for r.gather(a.local, k) {
			d, err := p.step(ctx, k.operation(a), r, k.cost())
			if err != nil {
				return err
			}
			if !d.Allowed {
				a = &operation{op: meter.OpPeek, local: a.local} // the rest only says where it stands
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
	d.RetryAfter = longer(d.RetryAfter, retry) // a limit that would have let pass may have counted the denial
	r.conclude(d)
	return nil
}

// longer returns the longer of two waits.
func longer(a, b stint.Wait) stint.Wait {
	if a == stint.Never || b == stint.Never {
		return stint.Never
	}
	return max(a, b)
}

// step asks for what was gathered.
func (p *Policy) step(ctx context.Context, a *operation, r *Result, cost int64) (stint.Decision, error) {
	d, err := p.decideIn(ctx, a, r, cost, false)
	if err != nil {
		return d, err
	}
	for i := range r.matches {
		h := &r.matches[i]
		if !r.now(h) {
			continue
		}
		if first := r.first(i); first != nil {
			copy(r.answers[h.first:h.first+len(h.plan.ruleLimits)], r.answers[first.first:])
		}
		r.setResult(h)
	}
	return d, nil
}

// now reports whether a match is asked in the step at hand.
func (r *Result) now(h *ruleMatch) bool { return h.enforced() && h.step == r.step }

// takes reports whether a match is charged, by its own plan or by another.
func (h *ruleMatch) takes() bool {
	return h.enforced() && (h.part == partTake || h.part == partAside)
}

// prepare says of all that take which plan is charged. What is beyond an int64 together
// never passes.
func (r *Result) prepare() {
	r.step = 0
	for i := range r.matches {
		h := &r.matches[i]
		if h.step = 0; h.part == partAside { // of the store that has failed
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

// again has what a tighter plan was charged for asked once more, if it was charged.
func (r *Result) again(a *operation) {
	for i := range r.matches {
		if h := &r.matches[i]; h.part == partAside && a.op == meter.OpTake {
			h.step = 0
		}
	}
}

// gather puts the layers of a step into r.layers, each key under a limit once, and reports
// whether there are any. What shares a state with another plan in it waits for the next.
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
		layer := r.layer(local, h) // also of one that is asked with the first, for its answers
		if first == nil {
			layer.Weight = int64(min(r.sum(h), math.MaxInt64))
			r.layers = append(r.layers, layer)
		}
	}
	return len(r.layers) > 0
}

// first returns the first match before r.matches[i] of this step that counts in its state.
func (r *Result) first(i int) *ruleMatch {
	for j := range r.matches[:i] {
		if g := &r.matches[j]; r.now(g) && r.share(g, &r.matches[i]) {
			return g
		}
	}
	return nil
}

// sum returns what is asked of a state in the part of h, by all plans; what is given back
// is not shared.
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

// share reports whether two matches count in one state: of a key, under a limit.
func (r *Result) share(g, h *ruleMatch) bool {
	if g.plan == h.plan || g.key != h.key || g.plan.rule != h.plan.rule {
		return g.plan == h.plan && g.key == h.key
	}
	return r.policy.stateName(g.plan) == r.policy.stateName(h.plan) && slices.ContainsFunc(g.plan.limits, func(l stint.Limit) bool {
		return slices.ContainsFunc(h.plan.limits, func(m stint.Limit) bool { return l.ID() == m.ID() })
	})
}

// joined returns what all enforced entries say together.
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

// answer fills in Answers from the entries of Rules.
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
