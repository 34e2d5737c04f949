package oracle

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/stint-dev/stint/test/proof/model"
)

// Justified returns the denials that nothing accounts for. It replays the
// charges of each key, those of counted denials too, and asks at each denial
// whether the definition of the limit has room for its cost. Where a time is
// known only to lie in [T, End], a denial is excused if it has no room at some
// instant of its own, with every charge that may have been made by then, as
// late as it may have been made. Events may be in any order but for exact ones
// of equal T.
//
// That one history is the worst there can be: no kind counts a charge for less
// because it was made later, and between the beginnings of calls the load only
// falls. But a window from a first request ends when that lets it: where times are not
// exact, its denials are held to the log, which denies whatever it may.
//
// Under a limit with bans, a denial that has its reason begins a ban, which is the reason
// of those after it; of exact times it ends when it should, and what passes before that is
// reported too.
func Justified(spec model.Spec, events []Event) []Violation {
	var found []Violation
	for _, own := range byKey(events) {
		r := replay{spec: spec, events: own, limits: model.New(), open: map[int]bool{}, excused: map[int]bool{}}
		r.exact = !slices.ContainsFunc(own, func(e Event) bool { return e.last() > e.T })
		of := spec
		if spec.FromFirst && !r.exact {
			of = model.Spec{Kind: model.Log, Count: spec.Count, Period: spec.Period}
		}
		r.layers = []model.Layer{{Name: "limit", Spec: of, Key: own[0].Key}}
		for _, m := range moments(own) {
			if v, bad := r.step(m); bad {
				found = append(found, v)
			}
		}
	}
	return found
}

// moment is one of the things that happen to a replay, in the order in which
// they do at one instant.
type moment struct {
	t     int64
	what  int // opens, decides or closes
	event int // index
}

const (
	opens   = iota // a call whose time is not exact may be decided from here on
	decides        // an exact decision
	closes         // an open call was decided by now
)

// moments lists what happens on one key, in order.
func moments(events []Event) []moment {
	var list []moment
	for i, e := range events {
		switch {
		case e.Cost == 0: // always passes, changes nothing
		case e.last() > e.T:
			list = append(list, moment{e.T, opens, i}, moment{e.last(), closes, i})
		default:
			list = append(list, moment{e.T, decides, i})
		}
	}
	slices.SortStableFunc(list, func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.what, b.what))
	})
	return list
}

// replay is one key's history on its way through the model.
type replay struct {
	spec    model.Spec
	events  []Event
	limits  *model.Model
	layers  []model.Layer
	open    map[int]bool // calls that may be decided now, by index
	excused map[int]bool // open denials that had no room at some instant
	exact   bool         // all times are
	banned  int64        // until when; with times that are not exact the latest that it may be
}

// step takes the replay through one moment. It returns a denial that is over
// and was never excused.
func (r *replay) step(m moment) (Violation, bool) {
	e := r.events[m.event]
	switch m.what {
	case opens:
		r.open[m.event] = true
		r.excuse(m.t)
	case decides:
		bad := r.denied(e) && r.room(m.t, m.event)
		if e.Allowed && !e.Debt && r.exact && m.t < r.banned {
			return Violation{Key: e.Key, From: e.T, To: e.last(), What: fmt.Sprintf("cost %d passed during a ban", e.Cost)}, true
		}
		r.ban(e)
		if r.charges(e) {
			r.limits.Charge(m.t, r.layers, e.Cost)
			r.excuse(m.t)
		}
		return r.unjustified(e), bad
	case closes:
		delete(r.open, m.event)
		r.ban(e)
		if r.charges(e) {
			r.limits.Charge(m.t, r.layers, e.Cost)
		}
		return r.unjustified(e), r.denied(e) && !r.excused[m.event]
	}
	return Violation{}, false
}

// ban begins one at a denial, at the latest moment that it can have.
func (r *replay) ban(e Event) {
	if r.spec.Ban > 0 && r.denied(e) && (!r.exact || e.last() >= r.banned) {
		r.banned = max(r.banned, plusSaturated(e.last(), r.spec.Ban))
	}
}

// mayBeBanned says whether a ban may be the reason of an event's denial at t: one that a
// denial before it began, or one that is open.
func (r *replay) mayBeBanned(t int64, event int) bool {
	if r.spec.Ban == 0 {
		return false
	}
	for i := range r.open {
		if i != event && r.denied(r.events[i]) {
			return true
		}
	}
	return t < r.banned
}

// denied says whether this limit denied the event.
func (r *replay) denied(e Event) bool { return !e.Allowed && !e.Elsewhere }

// charges says whether the event was charged.
func (r *replay) charges(e Event) bool { return e.Allowed || r.spec.CountDenied }

// pending sums up what the open calls but one may have charged: units, at most
// 2^63 − 1.
func (r *replay) pending(except int) int64 {
	sum := int64(0)
	for i := range r.open {
		if e := r.events[i]; i != except && r.charges(e) {
			sum = plusSaturated(sum, e.Cost)
		}
	}
	return sum
}

// excuse marks the open denials that have no room at t.
func (r *replay) excuse(t int64) {
	for i := range r.open {
		if r.denied(r.events[i]) && !r.excused[i] && !r.room(t, i) {
			r.excused[i] = true
		}
	}
}

// room says whether an event's cost would pass at t after all that the other
// open calls may have charged. For every kind, many takes at one instant pass
// if and only if one of their sum does.
func (r *replay) room(t int64, event int) bool {
	if r.mayBeBanned(t, event) {
		return false
	}
	cost := plusSaturated(r.events[event].Cost, r.pending(event))
	return r.limits.Admits(t, r.layers, cost)
}

// unjustified is the violation of a denial that nothing accounts for.
func (r *replay) unjustified(e Event) Violation {
	return Violation{Key: e.Key, From: e.T, To: e.last(),
		What: fmt.Sprintf("cost %d denied, though nothing that was charged leaves no room for it", e.Cost)}
}

// plusSaturated is a + b, at most 2^63 − 1, for a and b not below 0.
func plusSaturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
