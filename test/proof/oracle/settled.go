package oracle

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stint-dev/stint/test/proof/model"
)

// Settlement is that the charge of an event was settled at its true cost.
type Settlement struct {
	T     int64 // ns since the epoch
	Event int   // the index of the event that reserved
	Cost  int64 // units
}

// Settled returns a history as it was finally charged: a reservation at its own
// moment with its settled cost, at most what was reserved, and what is above as
// debt at the moment of settling.
func Settled(events []Event, settlements []Settlement) []Event {
	final := slices.Clone(events)
	for _, s := range settlements {
		e := &final[s.Event]
		if more := s.Cost - e.Cost; more > 0 {
			final = append(final, Event{T: s.T, Key: e.Key, Cost: more, Allowed: true, Debt: true})
			continue
		}
		e.Cost = s.Cost
	}
	slices.SortStableFunc(final, func(a, b Event) int { return cmp.Compare(a.T, b.T) })
	return final
}

// Admitted replays a history with exact times, as it was finally charged, and
// returns what was admitted that the limit has no room for.
func Admitted(spec model.Spec, events []Event) []Violation {
	var found []Violation
	m := model.New()
	for _, e := range events {
		layers := []model.Layer{{Name: "limit", Spec: spec, Key: e.Key}}
		switch {
		case e.Refund:
			m.Refund(e.T, layers, e.Cost)
		case e.Allowed && e.Cost > 0:
			if !e.Debt && !m.Admits(e.T, layers, e.Cost) {
				found = append(found, Violation{Key: e.Key, From: e.T, To: e.T,
					What: fmt.Sprintf("cost %d admitted, for which what was charged leaves no room", e.Cost)})
			}
			m.Charge(e.T, layers, e.Cost)
		}
	}
	return found
}
