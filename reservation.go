package stint

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A Reservation is a charge that is to be settled at its true cost. Unsettled
// at the end of its time to live, it stands as charged. Up to the cost that was
// reserved, a settlement rewrites history: the key stands as if the true cost
// had been charged all along. What is above is charged now, room or not.
//
// A Reservation may be used from many goroutines at once. It counts once:
// settled again, it answers the same. A nil Reservation, that of a request that was
// denied, has nothing to settle: its methods do nothing.
type Reservation struct {
	store Store
	parts []ReservationID // one for each cost
}

// partsOfID joins the IDs of a reservation over several keys. No store's IDs
// have one.
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

// Settle replaces the cost by the true one. A reservation of [All] takes the
// cost of each part that has one, in order; the answer is then that of the part
// that lets the fewest more units pass. Use a context that does not end with the
// request, such as that of [context.WithoutCancel]: what is not settled stands as
// charged. The error is [ErrReservation] for one
// that is unknown or has expired, and [ErrCost] for a cost below zero or another
// number of costs.
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

// A costsError says that a reservation was settled at the wrong number of costs. It
// is an ErrCost.
type costsError struct{ costs, parts int }

// Error says how many costs are wanted.
func (e *costsError) Error() string {
	return fmt.Sprintf("stint: %d costs to settle a reservation of %d parts: give one for each part, in order", e.costs, e.parts)
}

// Unwrap returns ErrCost.
func (e *costsError) Unwrap() error { return ErrCost }
