package policy

import (
	"context"
	"errors"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/meter"
)

// ResetKey forgets what a key has used under a rule, in the store and the local one: under
// the rule's own limits, those of its tiers and overrides, and the key's own. The error is
// [ErrNoRule], or the store's.
func (p *Policy) ResetKey(ctx context.Context, name, key string) error {
	return p.byKey(name, key, func(h *ruleMatch) error { return p.reset(ctx, h) })
}

func (p *Policy) reset(ctx context.Context, h *ruleMatch) error {
	if !h.plan.timed {
		return nil // places in flight end with their requests
	}
	p.pairOf(h.plan).Forget(h.key)
	for _, local := range [...]bool{false, true} {
		if p.in(local) == nil {
			continue
		}
		if err := p.in(local).Reset(ctx, []stint.Layer{{Bound: p.bound(local, h), Key: h.key}}); err != nil {
			return err
		}
	}
	return nil
}

// EndBans ends the bans of a key under a rule: an operator's act. A limit that has banned the
// key forgets what it has used, which would ban it again; the other limits keep it. The error
// is [ErrNoRule], or the store's.
func (p *Policy) EndBans(ctx context.Context, name, key string) error {
	return p.byKey(name, key, func(h *ruleMatch) (failed error) {
		ended := false
		for k := range h.plan.limits {
			limit := p.pairOf(h.plan).Limit(k)
			d, err := limit.Decide(ctx, meter.OpPeek, key, 1)
			if err == nil && d.Banned {
				ended = true
				err = p.main.Reset(ctx, []stint.Layer{{Bound: limit, Key: key}})
			}
			failed = errors.Join(failed, err)
		}
		if ended && p.local != nil { // the local store may have banned the key too
			failed = errors.Join(failed, p.local.Reset(ctx, []stint.Layer{{Bound: p.pairOf(h.plan).Local, Key: key}}))
		}
		return failed
	})
}

// RefundKey gives units back to a key under all limits of a rule, as far as they
// still count: an operator's act. The error is [stint.ErrCost], [ErrNoRule], or
// the store's.
func (p *Policy) RefundKey(ctx context.Context, name, key string, units int64) error {
	if units < 0 {
		return stint.ErrCost
	}
	given := make(map[string]bool) // by name and identity: limits of several plans may share a state
	return p.byKey(name, key, func(h *ruleMatch) (failed error) {
		for k, l := range h.plan.limits {
			state := p.stateName(h.plan) + "\x00" + l.ID()
			if given[state] {
				continue
			}
			given[state] = true
			_, err := p.main.Refund(ctx, []stint.Layer{{Bound: p.pairOf(h.plan).Limit(k), Key: h.key, Weight: 1}}, units)
			failed = errors.Join(failed, err)
		}
		return failed
	})
}

// ChargeKey charges a key under one limit of a rule, with up to so many units as there is
// room for, and returns how many it charged: so an operator takes back a refund. label is
// [RuleLimit.Label], variant [RuleLimit.Variant]; if the rule no longer has such a limit,
// nothing is charged. The error is [ErrNoRule], or the store's.
func (p *Policy) ChargeKey(ctx context.Context, name, key, label, variant string, units int64) (charged int64, err error) {
	err = p.byKey(name, key, func(h *ruleMatch) error {
		for k, limit := range h.plan.ruleLimits {
			if limit.Label != label || limit.Variant != variant {
				continue
			}
			d, err := p.pairOf(h.plan).Limit(k).Decide(ctx, meter.OpTakeUpTo, h.key, units)
			if err != nil {
				return err
			}
			charged += d.Taken
		}
		return nil
	})
	return charged, err
}

// Denies reports whether a limit that has denied a request of a key would still deny it:
// since then the key may have been reset, refunded or given limits of its own, and the rule
// may have changed. label is [RuleLimit.Label], variant [RuleLimit.Variant]. A ban under limits of
// its own that the key no longer has goes on under the rule's. Nothing is charged. The error is
// the store's.
func (p *Policy) Denies(ctx context.Context, name, key, label, variant string, cost int64) (denies bool, err error) {
	one, err := p.rules.rule(name)
	if err != nil {
		return false, nil //nolint:nilerr // a rule that is gone denies nothing
	}
	plans := one.allPlans()
	own := p.customers.find(name, key)
	gone := own == nil && variant == ownVariant
	if own != nil && variant != ownVariant {
		return false, nil
	} else if own != nil {
		plans = []*plan{own}
	}
	for _, plan := range plans {
		for k, limit := range plan.shown {
			same := limit.Label == label && limit.Variant == variant
			switch {
			case !same && (!gone || plan.action != "" || limit.Limit.InFlight()):
			case plan.action != "":
				denies = denies || plan.action == "block"
			case limit.Limit.InFlight():
				passes, err := p.room.Look(ctx, []inflight.Hold{{Name: limit.inFlight, Key: key, Limit: limit.Limit.Count(), Units: cost}})
				if err != nil {
					return false, err
				}
				denies = denies || !passes
			default:
				d, err := p.pairOf(plan).Limit(k).Decide(ctx, meter.OpPeek, key, cost)
				if err != nil {
					return false, err
				}
				denies = denies || d.Banned || same && !d.Allowed
			}
		}
	}
	return denies, nil
}

// byKey calls do for each plan with limits that a key may be held to.
func (p *Policy) byKey(name, key string, do func(h *ruleMatch) error) error {
	one, err := p.rules.rule(name)
	if err != nil {
		return err
	}
	plans := one.allPlans()
	if own := p.customers.find(name, key); own != nil {
		plans = append(plans, own)
	}
	var failed error
	for _, plan := range plans {
		if plan.action == "" {
			failed = errors.Join(failed, do(&ruleMatch{rule: one, plan: plan, key: key, weight: 1}))
		}
	}
	return failed
}
