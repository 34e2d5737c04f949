package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
)

// In a cluster, the layers of one request may be in several slots, which no one
// script can reach. They are then taken slot by slot, as reservations, and what
// was taken is given back when a later one denies: exactly, as far as time has
// not forgiven it, since a reservation knows. So they are not decided at one
// instant; meanwhile others may be denied for what is then given back; and what
// cannot be given back (a node fails in between) stands as charged.
//
// Limits that count what they deny are groups of their own, the last: when one
// denies, what was taken of them stands, and the rest is taken.

// A group is the layers of one slot, by their place in the request.
type group []int

// of returns the group's layers.
func (g group) of(parts []part) []part {
	out := make([]part, len(g))
	for i, at := range g {
		out[i] = parts[at]
	}
	return out
}

// counts reports whether the group's limits count what they deny.
func (g group) counts(parts []part) bool { return parts[g[0]].form.limit.CountDenied() }

// groups returns the layers by slots, those that count what they deny behind the
// others; nil if one call can reach them all.
func (s *Store) groups(parts []part) (groups []group) {
	if len(parts) == 1 || !s.driver.Cluster() {
		return nil
	}
	several := false
	for i := range parts[1:] {
		several = several || slotOf(parts[1+i].begin) != slotOf(parts[0].begin)
	}
	if !several {
		return nil
	}
	for _, counts := range []bool{false, true} {
		at := make(map[uint16]int)
		for i := range parts {
			if parts[i].form.limit.CountDenied() != counts {
				continue
			}
			slot := slotOf(parts[i].begin)
			k, ok := at[slot]
			if !ok {
				k = len(groups)
				at[slot] = k
				groups = append(groups, nil)
			}
			groups[k] = append(groups[k], i)
		}
	}
	return groups
}

// put writes a group's answers into those of the request.
func (g group) put(all, of answer) {
	for i, at := range g {
		copy(all[1+at*answersEach:][:answersEach], of[1+i*answersEach:])
	}
}

// each asks the same of every group, for which each may answer by itself.
func (s *Store) each(ctx context.Context, parts []part, groups []group, verb string, cost int64) (answer, error) {
	if groups == nil {
		return s.ask(ctx, parts, nil, verb, number(cost))
	}
	all := make(answer, 1+answersEach*len(parts))
	all[0] = cost
	for _, g := range groups {
		a, err := s.ask(ctx, g.of(parts), nil, verb, number(cost))
		if err != nil {
			return nil, err
		}
		g.put(all, a)
	}
	return all, nil
}

// decideGroups is Decide across slots.
func (s *Store) decideGroups(ctx context.Context, op stint.Op, parts []part, groups []group, cost int64) (stint.Decision, error) {
	if op == stint.OpPeek || cost == 0 {
		a, err := s.each(ctx, parts, groups, "p", cost)
		if err != nil {
			return stint.Decision{}, err
		}
		return a.join(parts, op != stint.OpPeek), nil
	}
	take := func(cost int64) (stint.Decision, error) {
		a, _, err := s.takeGroups(ctx, parts, groups, cost, groupHold, true)
		return s.joined(a, parts, err)
	}
	for op == stint.OpTakeUpTo {
		a, err := s.each(ctx, parts, groups, "p", 1)
		if err != nil {
			return stint.Decision{}, err
		}
		d := a.join(parts, false)
		switch {
		case !d.Allowed && groups[len(groups)-1].counts(parts):
			return take(1)
		case !d.Allowed:
			return d, nil
		}
		got, err := take(min(cost, d.Remaining))
		if err != nil || got.Allowed {
			return got, err
		}
		if cost = d.Remaining / 2; cost <= 1 { // others are quicker: the less, the likelier
			return take(1)
		}
	}
	return take(cost)
}

func (s *Store) joined(a answer, parts []part, err error) (stint.Decision, error) {
	if err != nil {
		return stint.Decision{}, err
	}
	return a.join(parts, true), nil
}

// groupHold is how long what was taken can be given back: much longer than a
// request takes. What is not given back by then stands.
const groupHold = time.Minute

// tokenJoint stands between the tokens of groups.
const tokenJoint = "+"

// reserveGroups is Reserve across slots.
func (s *Store) reserveGroups(ctx context.Context, parts []part, groups []group, cost int64, ttl time.Duration) (stint.Decision, stint.Token, error) {
	a, tokens, err := s.takeGroups(ctx, parts, groups, cost, ttl, false)
	d, err := s.joined(a, parts, err)
	if err != nil || !d.Allowed {
		return d, "", err
	}
	token := tokens[0]
	for _, t := range tokens[1:] {
		token += tokenJoint + t
	}
	return d, token, nil
}

// takeGroups takes group after group until one denies, and then gives back. The
// last is taken for good if nobody will settle it.
func (s *Store) takeGroups(ctx context.Context, parts []part, groups []group, cost int64, ttl time.Duration, forGood bool) (answer, []stint.Token, error) {
	all := make(answer, 1+answersEach*len(parts))
	all[0] = cost
	tokens := make([]stint.Token, 0, len(groups))
	for k, g := range groups {
		var a answer
		var token stint.Token
		var err error
		if forGood && k == len(groups)-1 {
			a, err = s.ask(ctx, g.of(parts), nil, "t", number(cost))
		} else {
			a, token, err = s.reserve(ctx, g.of(parts), cost, ttl)
		}
		if err != nil {
			if back := s.settleGroups(ctx, nil, groups, tokens, 0); back != nil {
				err = fmt.Errorf("%w: taken in part: %v: %v", ErrAmbiguous, err, back)
			}
			return nil, nil, err
		}
		g.put(all, a)
		if !a.allowed() {
			s.denied(ctx, all, groups, k, parts, tokens)
			return all, nil, nil
		}
		tokens = append(tokens, token)
	}
	return all, tokens, nil
}

// denied makes the answer whole after group k denied: those before it give back,
// unless they count what is denied, and those after it say what they would have,
// or count it. Neither failing makes it less of a denial: what cannot be given
// back stands as charged, and a layer that cannot be asked has nothing left as
// far as we know.
func (s *Store) denied(ctx context.Context, all answer, groups []group, k int, parts []part, tokens []stint.Token) {
	cost, plain := all[0], 0
	for plain < k && !groups[plain].counts(parts) {
		plain++
	}
	_ = s.settleGroups(ctx, all, groups, tokens[:plain], 0)
	_ = s.settleGroups(ctx, all, groups[plain:], tokens[plain:], cost)
	for _, g := range groups[k+1:] {
		verb := "p"
		if g.counts(parts) {
			verb = "t"
		}
		a, err := s.ask(ctx, g.of(parts), nil, verb, number(cost))
		if err != nil {
			a = make(answer, 1+answersEach*len(g))
			for i := range g {
				a[1+i*answersEach+answersOK] = 1
			}
		}
		g.put(all, a)
	}
}

// settleGroups settles the reservations of the first groups, also for a caller
// that has gone, and writes what they then answer, unless all is nil.
func (s *Store) settleGroups(ctx context.Context, all answer, groups []group, tokens []stint.Token, cost int64) (failed error) {
	for i, token := range tokens {
		a, _, err := s.settle(context.WithoutCancel(ctx), token, cost)
		if err != nil {
			failed = err
			continue
		}
		if all != nil {
			groups[i].put(all, a)
		}
	}
	return failed
}
