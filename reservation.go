package stint

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A Reservation is a charge that is to be settled at its true cost. If it is not settled
// by the end of its time to live, it stands as charged. A settlement below the reserved
// cost rewrites history: the key is as if the true cost had been charged from the start.
// A settlement above it charges the difference now, room or not.
//
// A Reservation may be used from many goroutines at once. It is settled once: a second
// settlement gives the same answer. The nil Reservation, that of a denied request, has
// nothing to settle: its methods do nothing.
type Reservation struct {
	store Store
	parts []ReservationID // one for each part with a cost
}

// partsOfID separates the IDs of a reservation over several keys. No store's ID contains
// it.
const partsOfID = "|"

func reservationOf(store Store, id ReservationID) *Reservation {
	if id == "" {
		return nil
	}
	r := &Reservation{store: store}
	for part := range strings.SplitSeq(string(id), partsOfID) {
		r.parts = append(r.parts, ReservationID(part))
	}
	return r
}

// ID returns the name of the reservation, which is valid in other processes on
// the same store too; see [Limiter.Reservation]. It is a secret: anyone who has
// it can settle the reservation.
func (r *Reservation) ID() ReservationID {
	if r == nil {
		return ""
	}
	ids := make([]string, len(r.parts))
	for i, id := range r.parts {
		ids[i] = string(id)
	}
	return ReservationID(strings.Join(ids, partsOfID))
}

// Settle replaces the cost by the true one. For a reservation of [All], give the cost of
// each part that had a cost, in order; the answer is that of the part that lets the fewest
// more units pass. Use a context that does not end with the request, such as that of
// [context.WithoutCancel], or an unsettled reservation stands as charged. The error is
// [ErrReservation] if the reservation is unknown or has expired, and [ErrCost] for a cost
// below zero or a wrong number of costs.
func (r *Reservation) Settle(ctx context.Context, costs ...int64) (d Decision, err error) {
	switch {
	case r == nil:
		return d, nil
	case r.store == nil:
		return d, errUnmade
	case len(costs) != len(r.parts):
		return d, &costsError{len(costs), len(r.parts)}
	}
	for i, id := range r.parts {
		one, failed := r.store.Settle(ctx, id, costs[i])
		if i == 0 || failed == nil && one.Remaining < d.Remaining {
			d = one
		}
		if err == nil {
			err = failed
		} else if failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return d, err
}

// Cancel settles at 0: the key stands as if nothing had been reserved.
func (r *Reservation) Cancel(ctx context.Context) (Decision, error) {
	if r == nil {
		return Decision{}, nil
	}
	return r.Settle(ctx, make([]int64, len(r.parts))...)
}

// A costsError says that a reservation was settled with the wrong number of costs. It
// matches ErrCost.
type costsError struct{ costs, parts int }

// Error says how many costs are wanted.
func (e *costsError) Error() string {
	return fmt.Sprintf("stint: %d costs to settle a reservation of %d parts: give one for each part, in order", e.costs, e.parts)
}

// Unwrap returns ErrCost.
func (e *costsError) Unwrap() error { return ErrCost }
