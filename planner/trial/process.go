package trial

import (
	"context"
	"fmt"
	"slices"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/simulate"
)

// A Process holds limits on each key in memory, on a virtual clock. It may be used from one
// goroutine at a time.
type Process struct {
	// Limiter decides, and Store is its store. Who asks either calls Advance first.
	Limiter *stint.Limiter
	Store   *memstore.Store

	now     int64
	first   stint.Limit
	flying  bool             // a limit is in flight, by the requests of running
	running simulate.Running // requests in flight
}

// NewProcess returns a process that holds limits on each key; the log of a limit that has
// one may have mostLog entries, 0 for the default of memstore.
func NewProcess(mostLog int64, limits ...stint.Limit) (*Process, error) {
	named := make([]stint.Limit, len(limits))
	for i, l := range limits {
		if named[i] = l.WithName(l.Name()); slices.Contains(named[:i], named[i]) { // several may be of one kind and period
			return nil, fmt.Errorf("%w: limit %q twice for one key", stint.ErrLayers, l.Name())
		}
	}
	p := &Process{first: named[0], flying: slices.ContainsFunc(limits, stint.Limit.InFlight)}
	p.Store = memstore.New(memstore.Options{Now: func() int64 { return p.now }, MaxLog: mostLog})
	var err error
	p.Limiter, err = stint.NewLimiter(p.Store, "trial", named...)
	return p, err
}

// InFlightName is the name under which the store counts what is in flight under the first
// limit.
func (p *Process) InFlightName() string { return stint.InFlightName("trial", p.first) }

// Advance sets the clock, which does not go back, and ends the requests that are over by
// then, each at its own moment.
func (p *Process) Advance(now int64) {
	p.running.End(now)
	p.now = now
}

// Take decides on an arrival, which does not come before the last one.
func (p *Process) Take(a Arrival) (stint.Decision, error) {
	p.Advance(a.At)
	if !p.flying {
		return p.Limiter.Take(context.Background(), a.Key, a.Cost)
	}
	d, end, err := p.Limiter.AcquireN(context.Background(), a.Key, a.Cost, 0)
	if err == nil && d.Allowed {
		until := addUpTo(addUpTo(a.At, int64(d.Delay)), int64(a.Lasts))
		p.running.Add(until, func() { p.now = until; end() })
	}
	return d, err
}
