package lab

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"

	"github.com/stint-dev/stint/planner/trial"
)

// A process holds one limit. Memory never fails, and costs are not below 0, so its methods
// have no errors.
type process struct {
	*trial.Process

	// Under a limit in flight:
	lasts time.Duration    // each request
	room  *inflight.Room   // where the limiter counts; nil under other limits
	hold  [1]inflight.Hold // what is asked of it about a key
}

func newProcess(l stint.Limit, lasts int64) (*process, error) {
	one, err := trial.NewProcess(math.MaxInt64, l)
	if err != nil {
		return nil, err
	}
	p := &process{Process: one, lasts: time.Duration(lasts)}
	if l.InFlight() {
		p.room = one.Store.InFlight()
		p.hold[0] = inflight.Hold{Name: one.InFlightName(), Limit: l.Count()}
	}
	return p, nil
}

func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// peek says how a key stands to a request.
func (p *process) peek(key int, now, cost int64) stint.Decision {
	p.Advance(now)
	if p.room == nil {
		return sure(p.Limiter.Peek(context.Background(), strconv.Itoa(key), cost))
	}
	one := &p.hold[0]
	one.Key, one.Units = strconv.Itoa(key), max(cost, 1)
	d := stint.Decision{Limit: one.Limit}
	if d.Allowed = sure(p.room.Look(context.Background(), p.hold[:])); !d.Allowed {
		d.RetryAfter = stint.RetryOf(one)
	}
	d.Remaining = max(d.Limit-one.Running, 0)
	return d
}

// take decides one request; before is how its key stood.
func (p *process) take(key int, now, cost int64) (before, d stint.Decision) {
	before = p.peek(key, now, cost)
	d = sure(p.Take(trial.Arrival{At: now, Key: strconv.Itoa(key), Cost: cost, Lasts: p.lasts}))
	if p.room != nil && cost == 0 { // it is not counted, so the answer has no numbers
		d.Limit, d.Remaining = before.Limit, before.Remaining
	}
	return before, d
}
