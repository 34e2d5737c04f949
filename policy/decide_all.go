package policy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/stint-dev/stint"
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
// pass, and then all are charged; else none is. Requests that meet the same key
// of a rule ask for the sum of their costs, and go by the plan of the first. The answer in r is about
// all of them as if they were one request, and r.Answers about each.
//
// What is given back goes first; what only asks is looked at before the others
// are charged, in a step of its own. If a request is at fault, as [Policy.Decide]
// says, len(r.Answers) is its number, and nothing was charged. All
// requests together are held to [stint.MaxLimits] limits at most.
func (p *Policy) DecideAll(ctx context.Context, requests []Request, r *Result) error {
	p.begin(r, 1)
	r.several = true
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
	for !r.gather(a.local, partTake) {
	}
	var retry stint.Wait
	for _, k := range [...]part{partRefund, partFree, partOver, partPeek, partTake} {
		r.gather(a.local, k)
		if len(r.layers) == 0 {
			continue
		}
		d, err := p.decideIn(ctx, k.operation(a), r, k.cost(), false)
		if err != nil {
			return err
		}
		if !d.Allowed {
			a = &operation{op: meter.OpPeek, local: a.local} // the rest only says where it stands
			retry = longer(retry, d.RetryAfter)
		}
		for i := range r.matches {
			h := &r.matches[i]
			if !h.enforced() || h.part != k {
				continue
			}
			if first := r.duplicate(i, k); first != nil {
				copy(r.answers[h.first:h.first+len(h.plan.ruleLimits)], r.answers[first.first:])
			}
			r.setResult(h)
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

// gather puts the layers of one part into r.layers, each key under a limit
// once. It reports false where sums are beyond an int64: then it has made them
// matches that never pass, and is to be called again.
func (r *Result) gather(local bool, k part) bool {
	r.layers = r.layers[:0]
	for i := range r.matches {
		h := &r.matches[i]
		if !h.enforced() || h.part != k {
			continue
		}
		first := r.duplicate(i, k)
		if first == nil {
			h.layer = len(r.layers)
			r.layers = append(r.layers, r.layer(local, h))
			continue
		}
		h.layer = first.layer
		sum := &r.layers[h.layer].Weight
		switch {
		case h.weight <= math.MaxInt64-*sum:
			*sum += h.weight
		case k == partTake:
			r.overflow(h)
			return false
		default:
			*sum = math.MaxInt64
		}
		r.layer(local, h) // room for its answers
	}
	return true
}

// overflow makes all that ask for h's key take part as what never passes.
func (r *Result) overflow(h *ruleMatch) {
	for i := range r.matches {
		if g := &r.matches[i]; g.part == partTake && g.plan == h.plan && g.key == h.key {
			g.part, g.weight = partOver, math.MaxInt64
		}
	}
}

// duplicate returns the first match before r.matches[i] with its key, limits and part.
func (r *Result) duplicate(i int, k part) *ruleMatch {
	if !r.several {
		return nil
	}
	h := &r.matches[i]
	for j := range r.matches[:i] {
		g := &r.matches[j]
		if g.enforced() && g.part == k && g.plan == h.plan && g.key == h.key {
			return g
		}
	}
	return nil
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
