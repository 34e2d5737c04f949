package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
)

// fly is setLimits for limits of which at least one is in flight: a limiter acquires and releases the
// units. A limit with the identity of an earlier one gets a name of its own.
func (r *Runner) fly(limits []stint.Limit, texts []string) (err error) {
	r.holds = nil
	for i, l := range limits {
		if slices.ContainsFunc(limits[:i], func(o stint.Limit) bool { return o.Name() == l.Name() }) {
			return fmt.Errorf("%w: limit %q twice for one key", stint.ErrLayers, l.Name())
		}
		if slices.ContainsFunc(limits[:i], func(o stint.Limit) bool { return o.ID() == l.ID() }) {
			limits[i] = l.WithName(l.Name())
		}
		if l.InFlight() {
			r.holds = append(r.holds, inflight.Hold{Name: stint.InFlightName(shared, limits[i]), Limit: l.Count()})
		}
	}
	if r.limiter, err = stint.NewLimiter(r.store, shared, limits...); err == nil {
		r.texts = texts
	}
	return err
}

// shared is the name under which limits are bound together.
const shared = "limits"

func (r *Runner) acquire(q Request) (stint.Decision, error) {
	d, end, err := r.limiter.AcquireN(context.Background(), q.Key, q.Cost, 0)
	if err == nil && d.Allowed {
		r.clock.After(later(r.clock.Now(), d.Delay), q.Lasts, end)
	}
	return d, err
}

// look peeks where all limits are in flight. The answer describes the first of them.
func (r *Runner) look(q Request) (d stint.Decision, err error) {
	if len(r.holds) < len(r.texts) {
		return d, errors.New("peek: limits in flight beside others answer takes alone")
	}
	room, err := stint.RoomOf(r.store)
	if err != nil {
		return d, err
	}
	for i := range r.holds {
		r.holds[i].Key, r.holds[i].Units = q.Key, max(q.Cost, 1)
	}
	first := &r.holds[0]
	if d.Allowed, err = room.Look(context.Background(), r.holds); !d.Allowed {
		d.RetryAfter = stint.RetryOf(first)
	}
	d.Limit, d.Remaining = first.Of, first.Left()
	return d, err
}

// checkFlying refuses operations that do not exist for limits in flight.
func checkFlying(op Op) error {
	switch {
	case op.NoKey:
		return errNoKey
	case op.Verb != "" && op.Verb != Take:
		return fmt.Errorf("op %q: under a limit in flight, write takes, with how long each \"lasts\"", op.Verb)
	}
	return nil
}

var errKinds = errors.New("change: limits in flight are there from the first line on, or not at all")

func lasts(text string) (time.Duration, error) {
	ns, err := parseDuration(text)
	if err == nil && ns < 0 {
		err = fmt.Errorf("%s is below zero", text)
	}
	return time.Duration(ns), err
}
