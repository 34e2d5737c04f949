package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint/planner/plan"
)

// Arrived is what one client sent, or all clients, as the shape list takes it.
type Arrived struct {
	// Start is where the timeline begins: the full second, minute, hour or day (UTC) before the
	// first request. Windows of limits then have the edges that they had in reality, for periods up
	// to that length.
	Start time.Time `json:"start"`
	// Horizon is how long the timeline is, in nanoseconds.
	Horizon int64 `json:"horizon"`
	// Requests is how many requests the log had; Times has the first [MaxArrivals] of them, in
	// nanoseconds from Start.
	Requests int64   `json:"requests"`
	Times    []int64 `json:"times"`
}

func arrived(t *plan.Trace, client string) (*Arrived, error) {
	if len(t.Times) == 0 {
		if client != "" {
			return nil, fmt.Errorf("client: there is none in this log that is called %q", clip(client))
		}
		return nil, errors.New("the log has no requests")
	}
	first, last := t.Times[0], t.Times[len(t.Times)-1]
	unit := int64(time.Second)
	for _, longer := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		if int64(longer) <= (last-first)/8 { // otherwise too much of the timeline would be empty
			unit = int64(longer)
		}
	}
	start := first - ((first%unit)+unit)%unit
	for i := range t.Times {
		t.Times[i] -= start
	}
	const second = int64(time.Second)
	horizon := (last - start + second) / second * second
	return &Arrived{time.Unix(0, start).UTC(), horizon, t.Requests, t.Times}, nil
}
