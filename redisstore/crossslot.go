package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// In a cluster, the layers of one request may be on several nodes, and one script reaches
// only one node. So all nodes are first asked, at once, whether they would let the request
// pass. If one would not, that is the answer, and nothing was written. Then all are charged,
// at once. If a node denies now, since another request came first, the others give their
// charges back. The answer to a charge says where it went to, so it is given back exactly,
// as far as time has not forgiven it, and nothing is kept beside the states.
//
// The price: layers are not decided at one instant, and meanwhile other requests may be
// denied because of a charge that is then given back. A charge that cannot be given back (a
// node fails, or a reservation of the key is opened or settled meanwhile) stands.

// A group is the layers that one call reaches, by their indexes in the request.
type group []int

// of returns the group's layers.
func (g group) of(parts []part) []part {
	out := make([]part, len(g))
	for i, at := range g {
		out[i] = parts[at]
	}
	return out
}

// pick converts a set of the request's layers to a set of the group's.
func (g group) pick(all stint.LimitSet) (of stint.LimitSet) {
	for i, at := range g {
		if all.Has(at) {
			of |= 1 << uint(i)
		}
	}
	return of
}

// put copies a group's answers to their places in the answer of the request.
func (g group) put(all, of answer) {
	for i, at := range g {
		copy(all[1+at*answersEach:][:answersEach], of[1+i*answersEach:])
	}
}

// groups returns the layers by node, if the nodes are known and run scripts on keys of
// several slots, else by slot; nil if one call reaches all layers.
func (s *Store) groups(parts []part) []group {
	return groupsBy(parts, s.placeOf)
}

// slotGroups returns the layers by slot, since the keys of a slot always stay together.
func (s *Store) slotGroups(parts []part) []group {
	if len(parts) == 1 || !s.driver.Cluster() {
		return nil
	}
	return groupsBy(parts, func(slot uint16) place { return place{slot: slot} })
}

func groupsBy(parts []part, placeOf func(slot uint16) place) (groups []group) {
	var few [8]place
	places := few[:0]
	for i := range parts {
		where, k := placeOf(slotOf(parts[i].begin)), 0
		for k < len(places) && places[k] != where {
			k++
		}
		if k == len(places) {
			places, groups = append(places, where), append(groups, nil)
		}
		groups[k] = append(groups[k], i)
	}
	if len(groups) == 1 {
		return nil
	}
	return groups
}

// A groupAnswer is the answer of a group.
type groupAnswer struct {
	answer
	marks  []string // to a charge: where it went to
	cells  string   // digits that say which states were overflow keys
	stands bool     // to giving back: some of the charge may stand
	before []any    // to a settlement: the reply to an earlier one, if there was one
	err    error
}

// each asks the same of every group, all at once. Of several errors it returns one, an
// ambiguous one if there is any.
func (s *Store) each(ctx context.Context, parts []part, groups []group, verb string, cost int64) (answer, []groupAnswer, error) {
	if groups == nil {
		one := s.answerGroup(ctx, parts, verb, cost)
		return one.answer, []groupAnswer{one}, one.err
	}
	all := make([]groupAnswer, len(groups))
	failed := atOnce(len(groups), func(k int) error {
		all[k] = s.answerGroup(ctx, groups[k].of(parts), verb, cost)
		return all[k].err
	})
	joined := make(answer, 1+answersEach*len(parts))
	joined[0] = cost
	for k, g := range groups {
		if all[k].err == nil {
			g.put(joined, all[k].answer)
		}
	}
	return joined, all, failed
}

// answerGroup asks the layers of one group, by the fast path if that knows them all.
func (s *Store) answerGroup(ctx context.Context, parts []part, verb string, cost int64) groupAnswer {
	if (verb == "p" || verb == "k") && isFast(parts) {
		return s.fastAnswer(ctx, parts, verb, cost)
	}
	return s.longPath(ctx, parts, nil, verb, number(cost))
}

// decideGroups is Decide on several nodes.
func (s *Store) decideGroups(ctx context.Context, op meter.Op, parts []part, groups []group, cost int64) (stint.Decision, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	looked := cost
	if op == meter.OpTakeUpTo {
		looked = min(cost, 1)
	}
	a, _, err := s.each(ctx, parts, groups, "p", looked)
	switch {
	case err != nil:
		return stint.Decision{}, err
	case op == meter.OpPeek || cost == 0:
		return a.join(parts, op != meter.OpPeek), nil
	case !a.allowed():
		return s.deniedGroups(ctx, a, parts, groups).join(parts, true), nil
	}
	if op == meter.OpTakeUpTo {
		cost = min(cost, a.join(parts, false).Remaining)
	}
	for {
		for i := range parts {
			parts[i].mild = op == meter.OpTakeUpTo && cost > 1 // no ban yet, since a smaller cost may pass
		}
		a, err = s.chargeGroups(ctx, parts, groups, cost)
		switch {
		case err != nil:
			return stint.Decision{}, err
		case a.allowed() || op != meter.OpTakeUpTo || cost == 1:
			return a.join(parts, true), nil
		}
		if cost /= 2; cost == 0 { // other requests were quicker: a smaller cost is more likely to pass
			cost = 1
		}
	}
}

// deniedGroups makes the layers with count_denied count a denied request, and the layers that
// denied it begin their bans, and puts their answers into a. The request stays denied even if
// such a layer cannot be asked, or would let it pass by now. What open reservations excuse is
// not counted.
func (s *Store) deniedGroups(ctx context.Context, a answer, parts []part, groups []group) answer {
	if !a.counts() {
		return a
	}
	var counting []group
	for _, g := range groups {
		var some group
		for _, at := range g {
			if l := parts[at].compiled.limit; l.CountDenied() || l.Ban() > 0 && a.denied().Has(at) {
				some = append(some, at)
			}
		}
		if some != nil {
			counting = append(counting, some)
		}
	}
	if counting == nil {
		return a
	}
	of := make([]groupAnswer, len(counting))
	_ = atOnce(len(counting), func(k int) error {
		of[k] = s.answerGroup(ctx, counting[k].of(parts), "x", a[0])
		return of[k].err
	})
	denied := a.denied()
	for k, g := range counting {
		if of[k].err == nil && g.pick(denied) == of[k].denied() {
			g.put(a, of[k].answer)
		}
	}
	return a
}

// chargeGroups charges all groups at once. If one denies, the others give their charges
// back, except layers with count_denied.
func (s *Store) chargeGroups(ctx context.Context, parts []part, groups []group, cost int64) (answer, error) {
	a, all, err := s.each(ctx, parts, groups, "k", cost)
	if err == nil && a.allowed() {
		return a, nil
	}
	failed := s.undo(ctx, a, parts, groups, all, err != nil || !a.counts())
	s.modes.returns.note(parts)
	if err == nil {
		return a, nil // it is denied, even if a charge could not be given back
	}
	return nil, inPart(err, failed != nil)
}

// errStands is the error of giving back a charge if some of it may stand.
var errStands = errors.New("other requests of the key came meanwhile, so that some of the charge may stand")

// undo gives back what groups have charged, and puts their answers into a. A call for
// which the request has no time left is made in the background.
func (s *Store) undo(ctx context.Context, a answer, parts []part, groups []group, all []groupAnswer, whole bool) error {
	return atOnce(len(groups), func(k int) error {
		if all[k].err != nil || !all[k].allowed() {
			return nil
		}
		of, back := all[k].returned(groups[k], parts, whole)
		if len(of) == 0 {
			return nil
		}
		some, head := back.of(parts), []string{number(a[0])}
		for _, i := range of {
			head = append(head, all[k].marks[i])
		}
		s.toCells(some, all[k].digits(of))
		one := s.longPath(ctx, some, nil, "y", head...)
		switch {
		case errors.Is(one.err, ErrNotExecuted):
			s.background(func(life context.Context) {
				longer, cancel := s.by(life, by(patience))
				defer cancel()
				s.longPath(longer, some, nil, "y", head...)
			})
		case one.err == nil:
			if back.put(a, one.answer); one.stands {
				return errStands
			}
		}
		return one.err
	})
}

// returned returns the layers of a group that give back, by their indexes in the group and
// in the request: all if whole, else those without count_denied.
func (q *groupAnswer) returned(g group, parts []part, whole bool) (of []int, back group) {
	for i, at := range g {
		if whole || !parts[at].compiled.limit.CountDenied() {
			of, back = append(of, i), append(back, at)
		}
	}
	return of, back
}

// digits returns the digits of q.cells for some layers, by their indexes in the group.
func (q *groupAnswer) digits(of []int) string {
	var b strings.Builder
	for _, i := range of {
		if i < len(q.cells) {
			b.WriteByte(q.cells[i])
		}
	}
	return b.String()
}

// idJoint joins the IDs of a reservation in several slots.
const idJoint = "+"

// reserveGroups is Reserve in several slots.
func (s *Store) reserveGroups(ctx context.Context, parts []part, groups []group, r reserving) (stint.Decision, stint.ReservationID, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	a, _, err := s.each(ctx, parts, groups, "p", r.cost)
	switch {
	case err != nil:
		return stint.Decision{}, "", err
	case !a.allowed():
		return s.deniedGroups(ctx, a, parts, groups).join(parts, true), "", nil
	}
	ids := make([]string, len(groups))
	err = atOnce(len(groups), func(k int) error {
		of, id, err := s.reserve(ctx, groups[k].of(parts), r)
		if err == nil {
			groups[k].put(a, of)
			ids[k] = string(id)
		}
		return err
	})
	if err == nil && a.allowed() {
		return a.join(parts, true), stint.ReservationID(strings.Join(ids, idJoint)), nil
	}
	failed := s.cancelGroups(ctx, a, groups, ids)
	if err == nil {
		return a.join(parts, true), "", nil
	}
	return stint.Decision{}, "", inPart(err, failed != nil)
}

// cancelGroups gives back the reservations of the groups that have made one. Layers with
// count_denied are in groups of their own, which are not among these.
func (s *Store) cancelGroups(ctx context.Context, a answer, groups []group, ids []string) (failed error) {
	for k, g := range groups {
		if ids[k] == "" {
			continue
		}
		var of answer
		open, err := s.findReservation(context.WithoutCancel(ctx), stint.ReservationID(ids[k]))
		if err == nil {
			of, _, err = s.settleFound(context.WithoutCancel(ctx), open, 0)
		}
		if err != nil {
			failed = err
			continue
		}
		g.put(a, of)
	}
	return failed
}
