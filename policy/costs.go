package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/satmath"
)

// Costs are what a request costs under some rules, by their names, in place of the plain
// cost; each rule multiplies it as it does the plain cost. Under a limit in flight, they are
// how many places the request takes; 0 takes none.
type Costs map[string]int64

// MaxCosts is how many rules a request may name in its costs.
const MaxCosts = 16

// A CostsError says that a request has costs by rule that no request can have. It is an
// [ErrRequest].
type CostsError struct {
	// Rule is the name that is at fault; "" if it is all of them.
	Rule string
	// Reason says what is wrong, and what would be right.
	Reason string
}

// Error names the rule and the reason.
func (e *CostsError) Error() string {
	if e.Rule == "" {
		return "policy: costs: " + e.Reason
	}
	return fmt.Sprintf("policy: costs of %q: %s", e.Rule, e.Reason)
}

// Is reports whether target is [ErrRequest].
func (e *CostsError) Is(target error) bool { return target == ErrRequest }

func (c Costs) names() []string {
	names := make([]string, 0, len(c))
	for name := range c {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// check returns what is wrong with c, if has accepts only the names that known lists.
func (c Costs) check(has func(name string) bool, known func() []string) error {
	if len(c) > MaxCosts {
		return &CostsError{"", fmt.Sprintf("%d names: at most %d", len(c), MaxCosts)}
	}
	for _, name := range c.names() {
		switch {
		case c[name] < 0:
			return &CostsError{name, "below zero"}
		case !has(name):
			return &CostsError{name, "no such rule: there is " + listed(known())}
		}
	}
	return nil
}

// mostListed is how many names an error lists.
const mostListed = 50

func listed(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > mostListed:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostListed], ", "), len(names)-mostListed)
	}
	return strings.Join(names, ", ")
}

func (r *Rules) checkCosts(c Costs) error {
	return c.check(func(name string) bool { return r.byName[name] != nil }, r.Names)
}

// Counted returns the names in Costs whose rules the request was held to, in the order of the
// rules.
func (r *Result) Counted() (names []string) {
	for i := range r.matches {
		if h := &r.matches[i]; h.named && h.plan.id >= 0 && !h.fixed {
			names = append(names, h.rule.Name)
		}
	}
	return names
}

// costByRule sets what a match costs if the request has costs by rule: the request then
// counts as 1, and the whole cost is the match's weight.
func (r *Result) costByRule(h *ruleMatch) error {
	if asked, named := r.Costs[h.rule.Name]; named {
		h.asked, h.named = asked, true
	}
	var fits bool
	if h.weight, fits = satmath.Mul(h.unit, h.asked); !fits {
		return &CostsError{h.rule.Name, "times what the rule costs, above the largest number"}
	}
	return nil
}

// AsksUsage reports whether a proxy should ask the server to report usage: a rule that
// charges the request, and is not in shadow, wants it.
func (r *Result) AsksUsage() bool {
	for i := range r.matches {
		if h := &r.matches[i]; h.enforced() && h.weight > 0 && h.rule.Response != nil && h.rule.Response.AskUsage {
			return true
		}
	}
	return false
}

// Counts reports whether a rule, also one in shadow, charges the request by the status of its response.
func (r *Result) Counts() bool {
	return slices.ContainsFunc(r.matches, func(h ruleMatch) bool {
		return h.limited() && h.weight > 0 && h.rule.Response != nil && h.rule.Response.Count != nil
	})
}

// places returns how many places a match takes under a limit in flight.
func (h *ruleMatch) places() int64 {
	if h.named || h.cost == 0 {
		return min(h.asked, h.cost)
	}
	return 1
}

// apart reports whether a match has a reservation of its own, so that it can be settled by
// itself: it goes by the response, or was named in the costs of the request.
func (h *ruleMatch) apart(a *operation) bool {
	return h.byResponse(a) || a.ttl > 0 && h.named
}

func (h *ruleMatch) byResponse(a *operation) bool { return a.response > 0 && h.rule.Response != nil }

// Keep is a plain cost of [Policy.SettleCosts] that settles nothing.
const Keep = -1

// SettleCosts is [Policy.Settle] with costs by rule. cost settles the rules that took the
// plain cost, unless it is [Keep]. costs settles rules that the reservation named; those that
// it leaves out keep what they took. A rule that did not hold the request is passed over:
// counted has the names of the others. The first settlement gives back the places under
// limits in flight, whatever it settles.
func (p *Policy) SettleCosts(ctx context.Context, id stint.ReservationID, cost int64, costs Costs) (d stint.Decision, counted []string, err error) {
	if cost < Keep {
		return d, nil, stint.ErrCost
	}
	parts, err := p.parts(id)
	if err != nil || parts == nil {
		return d, nil, err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(parts, func(part reservedPart) bool { return part.name == name })
	}
	known := func() (names []string) {
		for _, part := range parts {
			if part.name != "" {
				names = append(names, part.name)
			}
		}
		return names
	}
	if err := costs.check(has, known); err != nil {
		return d, nil, err
	}
	d, err = p.settleParts(ctx, parts, func(part *reservedPart) (int64, bool) {
		if part.name == "" {
			return cost, cost != Keep
		}
		named, ok := costs[part.name]
		if ok && part.id != "" {
			counted = append(counted, part.name)
		}
		return named, ok
	})
	return d, counted, err
}

// settleParts settles the parts of a reservation that cost returns a cost for, and gives back
// its places. The answer is that of the part that lets the fewest more units pass; parts in
// shadow answer only if there are no others. A part that the store no longer knows is settled
// already, and so no error where another one is settled here.
func (p *Policy) settleParts(ctx context.Context, parts []reservedPart, cost func(*reservedPart) (int64, bool)) (d stint.Decision, err error) {
	first, shadow, settled, elsewhere := true, true, false, false
	settle := func(part *reservedPart) {
		units, ok := cost(part)
		if !ok && !part.inFlight || part.id == "" {
			return
		}
		one, failed := p.settle(ctx, *part, units)
		switch {
		case part.shadow && !shadow:
			return
		case failed != nil:
			elsewhere = elsewhere || part.local && errors.Is(failed, stint.ErrReservation)
			if err == nil || errors.Is(err, stint.ErrReservation) {
				err = failed
			}
		case first, shadow && !part.shadow, one.Limit > 0 && (d.Limit == 0 || one.Remaining < d.Remaining):
			d = one
		}
		first, shadow, settled = false, shadow && part.shadow, settled || failed == nil && !part.inFlight && !part.shadow
	}
	for i := range parts {
		if !parts[i].inFlight {
			settle(&parts[i])
		}
	}
	if !settled && elsewhere {
		return d, err // another process made it while the store was away, and may still settle it
	}
	for i := range parts {
		if parts[i].inFlight {
			settle(&parts[i])
		}
	}
	if settled && errors.Is(err, stint.ErrReservation) {
		err = nil
	}
	return d, err
}

// unmatched adds a part without an ID for each name in Costs whose rule did not hold the
// request, so that a settlement may name it.
func (r *Result) unmatched() {
	for _, name := range r.Costs.names() {
		if !slices.ContainsFunc(r.parts, func(part reservedPart) bool { return part.name == name }) {
			r.parts = append(r.parts, reservedPart{name: name})
		}
	}
}
