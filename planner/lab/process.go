package lab

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/simulate"
)

// A process holds a limit by itself, in memory, on a virtual clock. Memory never fails,
// and costs are not below 0, so its methods have no errors.
type process struct {
	now     int64
	limiter *stint.Limiter

	// Under a limit in flight:
	lasts   int64            // each request, in nanoseconds
	room    *inflight.Room   // where the limiter counts; nil under other limits
	hold    [1]inflight.Hold // what is asked of it about a key
	running simulate.Running
}

func newProcess(l stint.Limit, lasts int64) (*process, error) {
	p := &process{lasts: lasts}
	store := memstore.New(memstore.Options{Now: func() int64 { return p.now }, MaxLog: math.MaxInt64})
	if l.InFlight() {
		p.room = store.InFlight()
		p.hold[0] = inflight.Hold{Name: stint.InFlightName("lab", l), Limit: l.Count(), Units: 1}
	}
	var err error
	p.limiter, err = stint.NewLimiter(store, "lab", l)
	return p, err
}

func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// peek says how a key stands to a request.
func (p *process) peek(key int, now, cost int64) stint.Decision {
	p.now = now
	if p.room == nil {
		return sure(p.limiter.Peek(context.Background(), strconv.Itoa(key), cost))
	}
	p.running.End(now)
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
	d, end, err := p.limiter.AcquireN(context.Background(), strconv.Itoa(key), cost, 0)
	switch sure(d, err); {
	case p.room == nil:
	case cost == 0: // it is not counted, so the answer has no numbers
		d.Limit, d.Remaining = before.Limit, before.Remaining
	case d.Allowed:
		p.running.Add(plus(now, p.lasts), end)
	}
	return before, d
}

// charge counts what others have decided to let through; before is how its key stood.
func (p *process) charge(key int, now, cost int64, passed bool) (before stint.Decision) {
	before = p.peek(key, now, cost)
	switch ctx := context.Background(); {
	case !passed || cost == 0:
	case p.room == nil:
		_, r, err := p.limiter.Reserve(ctx, strconv.Itoa(key), 0, time.Second)
		sure(sure(r, err).Settle(ctx, cost))
	default:
		holds := []inflight.Hold{p.hold[0]}
		holds[0].Units = cost
		p.room.Add(holds)
		p.running.Add(plus(now, p.lasts), func() { p.room.Release(holds) })
	}
	return before
}
