package fallback

import (
	"context"
	"math"
	"slices"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
)

var _ stint.RoomStore = (*Store)(nil)

// InFlight implements [stint.RoomStore]; it is nil if the shared store has no limits in flight.
// While that store fails, this process holds each limit to its share, rounded down but at least
// one, and tells the shared store later what it let in.
func (s *Store) InFlight() *inflight.Room { return s.room }

// newRoom returns a room that asks the shared store's room, and a local one while that fails.
func (s *Store) newRoom() *inflight.Room {
	shared, err := stint.RoomOf(s.main)
	if err != nil {
		return nil
	}
	return shared.Over(func(counts inflight.Counts) inflight.Counts {
		return &flights{of: s, shared: counts, local: inflight.NewRoom(inflight.NewMemory(), 0)}
	})
}

// flights count what runs in both stores, whichever let it in, and give it back to both.
type flights struct {
	of     *Store
	shared inflight.Counts
	local  *inflight.Room // a lease that another process ends must give nothing back here
}

// Most implements [inflight.Counts].
func (f *flights) Most() int64 { return f.shared.Most() }

// Acquire implements [inflight.Counts].
func (f *flights) Acquire(ctx context.Context, holds []inflight.Hold) (ok bool, err error) {
	switch ok, err = f.shared.Acquire(ctx, holds); {
	case err != nil:
		take := func(here []inflight.Hold) (bool, error) { return f.local.Acquire(ctx, here) }
		if ok, err = f.instead(ctx, holds, err, take); ok {
			for i := range holds {
				holds[i].Added = true
			}
			f.shared.Add(slices.Clone(holds))
		}
	case ok:
		f.local.Add(slices.Clone(holds))
		fallthrough
	default:
		f.of.failover.Answered()
	}
	return ok, err
}

// Look implements [inflight.Counts].
func (f *flights) Look(ctx context.Context, holds []inflight.Hold) (ok bool, err error) {
	if ok, err = f.shared.Look(ctx, holds); err != nil {
		return f.instead(ctx, holds, err, func(here []inflight.Hold) (bool, error) { return f.local.Look(ctx, here) })
	}
	return ok, nil
}

// Add implements [inflight.Counts].
func (f *flights) Add(holds []inflight.Hold) {
	f.shared.Add(slices.Clone(holds))
	f.local.Add(holds)
}

// Release implements [inflight.Counts].
func (f *flights) Release(holds []inflight.Hold) {
	f.shared.Release(holds)
	f.local.Release(holds)
}

// instead answers a call that the shared store has failed.
func (f *flights) instead(ctx context.Context, holds []inflight.Hold, why error, local func([]inflight.Hold) (bool, error)) (ok bool, err error) {
	if !f.of.fails(ctx, why) {
		return false, why
	}
	here := slices.Clone(holds)
	for i := range here {
		h := &here[i]
		switch f.of.mode {
		case Open:
			h.Limit = math.MaxInt64
		case Closed:
			h.Limit = 0
		default:
			h.Limit = max(h.Limit/f.of.failover.Nodes(), 1)
		}
		holds[i].Vain = h.Units > h.Limit
	}
	ok, err = local(here)
	for i, h := range here {
		holds[i].Running, holds[i].Of, holds[i].Denied = h.Running, min(h.Of, holds[i].Limit), h.Denied
	}
	return ok, err
}
