package policy

import (
	"context"
	"errors"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
)

// A response whose rule says cut takes more while it runs. Each raise is a reservation of its
// own, and what was reserved before is settled then, since it is used up: so one is open at a
// time, what was taken last is given back first, and a reservation that is gone is noticed.

// raised is what a response has taken so far.
type raised struct {
	used int64 // in what was reserved before, and is settled
	room int64 // what it may cost until the store is asked
	cost int64 // what it has cost, without the bytes at hand
}

// Cuts reports whether a rule may cut the body. Then [Pending.Cut] takes the place of Write.
func (d *Pending) Cuts() bool {
	for i := range d.rules {
		if d.rules[i].Cut {
			return true
		}
	}
	return false
}

// Cut is told the next bytes of the body before they are sent, and reports whether they must
// not be, since a rule has nothing left for them: then they cost nothing, and End follows.
// Each time what is reserved is used up, it takes as much again as was first reserved, or what
// these bytes lack if that is more, or what there is if that is less. What is denied here
// begins no ban and is not counted as denied. A response that is cut costs what has passed,
// also if that is less than was reserved. A response whose reservation is gone, since its
// key was reset, ends uncharged.
//
// Price: a decision of the store, and the settlement of what was reserved before, each time.
func (d *Pending) Cut(ctx context.Context, p []byte) bool {
	for i := range d.rules {
		d.rules[i].cost = d.rules[i].units(d, false, 0)
	}
	_, _ = d.Write(p)
	for i := range d.rules {
		one := &d.rules[i]
		if !one.Cut || one.settled || one.part.shadow {
			continue
		}
		if lacks := one.units(d, false, 0) - one.room; lacks > 0 {
			more := d.policy.raise(ctx, one, max(one.reserved, lacks))
			one.room += more
			d.cut = d.cut || more == 0
		}
	}
	return d.cut
}

// raise takes up to a cost more, and returns how much: 0 ends the response. While the store
// fails, the rule says what is done.
func (p *Policy) raise(ctx context.Context, s *settling, want int64) int64 {
	part, err := p.takeMore(ctx, s, false, want)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return want // nobody is there to get it
	case !p.failover.Fails(err) || s.of.rule.failure == FailClosed:
		return 0
	case s.of.rule.failure == FailOpen:
		return want
	case p.local == nil:
		return 0
	default:
		why := err
		if part, err = p.takeMore(ctx, s, true, want); err != nil {
			return 0
		}
		p.pairOf(s.of.plan).Owe(why, s.of.key, part.cost, true)
	}
	if part.cost == 0 {
		return 0
	}
	if _, err = p.settle(ctx, s.part, s.part.cost); errors.Is(err, stint.ErrReservation) {
		_, _ = p.settle(ctx, part, 0) // gone as well, or given back
		s.settled = true
		return 0
	}
	s.used, s.part = s.used+s.part.cost, part
	return part.cost
}

// takeMore reserves up to a cost in one store, without a trace of what is denied.
func (p *Policy) takeMore(ctx context.Context, s *settling, local bool, want int64) (reservedPart, error) {
	layers := []stint.Layer{{Bound: p.bound(local, &s.of), Key: s.of.key, Excuses: responseLasts}}
	for want > 0 {
		d, id, err := fallback.TakeTurn(ctx, p.in(local), layers, want, responseLasts, 0)
		if err != nil {
			return reservedPart{}, err
		}
		if d.Allowed {
			p.remember(&s.of, id, want, 1, responseLasts)
			if s.of.local() && !local {
				p.pairOf(s.of.plan).Warm(s.of.key, want)
			}
			return reservedPart{id: id, cost: want, local: local, match: s.part.match}, nil
		}
		if d.Remaining >= want { // what it lacks is not room
			break
		}
		want = d.Remaining
	}
	return reservedPart{}, nil
}
