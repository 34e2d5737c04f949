package policy

import (
	"context"
	"errors"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
)

// A response whose rule says cut reserves more while it runs. Each raise is a reservation of
// its own, which is not made once the one before does not exist any more. They stay open until
// the response says its cost, which may be less than what it seemed to cost before.

// mostParts is how many reservations of a response stay open: each is one of the 1,024 of its
// key that a store keeps apart. The oldest of more than that is settled as used up.
const mostParts = 64

// raised is what a response has taken so far, under one rule.
type raised struct {
	parts []reservedPart // that are open, the newest last
	used  int64          // units of earlier ones, which are settled
	room  int64          // what the response may cost before the store is asked again
	cost  int64          // what the response has cost, without the bytes that Cut was told last
}

// Cuts reports whether a rule may cut the body. If so, call [Pending.Cut] in place of Write.
func (d *Pending) Cuts() bool {
	for i := range d.rules {
		if d.rules[i].Cut {
			return true
		}
	}
	return false
}

// Cut is told the next bytes of the body before they are sent. It reports true if they must
// not be sent, because a rule has no room left for them: they then cost nothing, and End
// follows. When a response has used up what is reserved, it reserves as much again as at
// first, or what these bytes lack if that is more, or what room there is if that is less. A
// denial here begins no ban and is not counted. A response that is cut costs what has passed,
// even if that is less than was reserved. If the reservation no longer exists because its key
// was reset, the response is cut and charged nothing further.
//
// Price: a decision of the store each time that the response reserves more, and a settlement
// of what that took, at the end.
func (d *Pending) Cut(ctx context.Context, p []byte) bool {
	for i := range d.rules {
		d.rules[i].cost = d.rules[i].units(d, false, 0)
	}
	_, _ = d.Write(p)
	for i := range d.rules {
		one := &d.rules[i]
		if !one.Cut || one.settled || one.parts[0].shadow {
			continue
		}
		if lacks := one.units(d, false, 0) - one.room; lacks > 0 {
			more := int64(0)
			if d.reserves(1) == nil {
				more = d.policy.raise(ctx, one, max(one.reserved, lacks))
				_ = d.reserves(0)
			}
			one.room += more
			d.cut = d.cut || more == 0
		}
	}
	return d.cut
}

// raise reserves up to want further units, and returns how many: 0 ends the response. While
// the store fails, the rule's on_store_failure decides.
func (p *Policy) raise(ctx context.Context, s *settling, want int64) int64 {
	part, err := p.takeMore(ctx, s, &operation{}, want)
	failed := err != nil && ctx.Err() == nil && p.failover.Fails(err)
	if failed && s.match.rule.failure == FailLocal && p.local != nil {
		part, err = p.takeMore(ctx, s, &operation{local: true, why: err}, want)
	}
	switch {
	case errors.Is(err, stint.ErrReservation):
		s.settled = true // its key was reset
		return 0
	case err != nil && ctx.Err() != nil: // the client has gone: nothing more is sent
		return want
	case failed && s.match.rule.failure == FailOpen:
		return want
	case err != nil || part.cost == 0:
		return 0
	}
	if s.parts = append(s.parts, part); len(s.parts) > mostParts {
		oldest := s.parts[0]
		_, _ = p.settle(ctx, oldest, oldest.cost)
		s.used, s.parts = s.used+oldest.cost, s.parts[1:]
	}
	return part.cost
}

// takeMore reserves up to want units in one store; a denial leaves no trace there.
func (p *Policy) takeMore(ctx context.Context, s *settling, a *operation, want int64) (reservedPart, error) {
	layers := []stint.Layer{{Bound: p.bound(a.local, &s.match), Key: s.match.key, Excuses: responseLasts}}
	for _, part := range s.parts {
		if part.local == a.local {
			layers[0].Raises = part.id
		}
	}
	for want > 0 {
		d, id, err := fallback.TakeTurn(ctx, p.in(a.local), layers, want, responseLasts, 0)
		p.remember(a, id, err, want, responseLasts, func() []fallback.Reserved { return p.reservedBy(&s.match, 1, responseLasts) })
		if err != nil || d.Allowed {
			return reservedPart{id: id, cost: want, local: a.local}, err
		}
		if d.Remaining >= want { // room is not what it lacks: a leaky_queue would delay it
			break
		}
		want = d.Remaining
	}
	return reservedPart{}, nil
}
