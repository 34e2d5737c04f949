package policy

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
	"github.com/stint-dev/stint/meter"
)

// A charged is a key that a part of a reservation charges. The reservation's ID carries it,
// so that any process knows whose usage a settlement changes.
type charged struct {
	rule, plan, key string
	weight          int64 // how many units of the limit one unit of the cost takes
}

// charges notes in each part the keys that it charges, but those of rules in shadow.
func (r *Result) charges() {
	for i := range r.parts {
		part := &r.parts[i]
		part.of = nil
		for k := range r.matches {
			h := &r.matches[k]
			own := part.name == "" && !h.named || part.name != "" && part.name == h.rule.Name
			if own && !part.inFlight && !part.shadow && h.enforced() && h.unit > 0 {
				part.of = append(part.of, charged{h.rule.Name, h.plan.name, h.key, h.unit})
			}
		}
	}
}

func appendCharged(b []byte, of []charged) []byte {
	b = binary.AppendUvarint(b, uint64(len(of)))
	for _, one := range of {
		b = appendText(appendText(appendText(b, one.rule), one.plan), one.key)
		b = binary.AppendUvarint(b, uint64(one.weight))
	}
	return b
}

func cutCharged(b []byte) (of []charged, rest []byte, ok bool) {
	left, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, nil, false
	}
	for b = b[n:]; left > 0; left-- {
		var one charged
		for _, text := range []*string{&one.rule, &one.plan, &one.key} {
			if *text, b, ok = cutText(b); !ok {
				return nil, nil, false
			}
		}
		weight, n := binary.Uvarint(b)
		if n <= 0 || weight > math.MaxInt64 {
			return nil, nil, false
		}
		one.weight, b = int64(weight), b[n:]
		of = append(of, one)
	}
	return of, b, true
}

// Charged says in r how the keys of a reservation stand after [Policy.SettleCosts] has
// settled it at these costs: Cost of each entry is what the settlement charged, 0 if the
// charge was kept. Rules in shadow, and rules that no longer exist, are left out. It returns
// false if r has no entries, or the store fails. The reservation may have been made by
// another process.
//
// Price: a decision of the store that charges nothing.
func (p *Policy) Charged(ctx context.Context, id stint.ReservationID, cost int64, costs Costs, r *Result) bool {
	parts, ok := p.open(id)
	if !ok {
		return false
	}
	p.begin(r, 0)
	for i := range parts {
		units := max(cost, 0)
		if parts[i].name != "" {
			units = costs[parts[i].name]
		}
		for _, one := range parts[i].of {
			p.addCharged(r, one, units)
		}
	}
	if len(r.matches) == 0 || p.run(ctx, &operation{op: meter.OpPeek}, r) != nil {
		return false
	}
	p.above(ctx, r)
	return true
}

func (p *Policy) addCharged(r *Result, one charged, units int64) {
	of, err := p.rules.rule(one.rule)
	if err != nil {
		return
	}
	plans := of.allPlans()
	if own := p.customers.find(one.rule, one.key); own != nil {
		plans = append(plans, own)
	}
	for _, plan := range plans {
		if plan.name != one.plan || !plan.timed {
			continue
		}
		h := ruleMatch{rule: of, plan: plan, key: one.key, first: len(r.Rules)}
		r.matches = append(r.matches, h)
		r.addEntries(&h)
		for k := range r.Rules[h.first:] {
			r.Rules[h.first+k].Cost, _ = satmath.Mul(units, one.weight)
		}
		return
	}
}
