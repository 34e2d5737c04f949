package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/inflight"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/simulate"
)

// Options say how processes hold limits together. Times are nanoseconds of the clock
// that all go by. The default value is one process by itself.
type Options struct {
	// Redis is what the processes share. Without it, modes strict and share are held in
	// memory, and the others are [ErrServer].
	Redis *Redis
	// Count is how many processes there are, and Mode how they share the limits.
	Count int
	Mode  redisstore.Mode
	// From AwayFrom until AwayTo no process reaches the server: each then holds its
	// part of the limits by itself, as package fallback does.
	AwayFrom, AwayTo int64
	// Skew is how far the clock of the last process is ahead of that of the first;
	// those between lie evenly. The server's clock is the first one's.
	Skew time.Duration
}

// Processes hold limits together over one server, on a virtual clock: each through the
// store that stint serve has. What is in flight the server counts in memory always, in
// any mode: a real one would go by its own clock. They may be used from one goroutine at
// a time.
type Processes struct {
	options Options
	memory  *memory // nil on a Redis
	room    string  // on a Redis
	flights *inflight.Room
	link    link
	all     []*process
	now     int64
	next    int
	back    bool             // what was owed has been posted since the server is back
	flying  bool             // a limit is in flight, by the requests of running
	running simulate.Running // in all processes
	failed  error            // a call that should not have been
}

// A process is one of them.
type process struct {
	of      *Processes
	ahead   int64 // its clock
	store   stint.Store
	limiter *stint.Limiter
}

// NewProcesses returns processes that hold limits on each key.
func NewProcesses(limits []stint.Limit, o Options) (*Processes, error) {
	if o.Count == 0 {
		o.Count, o.Mode = 1, redisstore.Share
	}
	p := &Processes{options: o, flying: slices.ContainsFunc(limits, stint.Limit.InFlight), flights: inflight.NewRoom(inflight.NewMemory(), 0)}
	named := make([]stint.Limit, len(limits))
	for i, l := range limits {
		if named[i] = l.WithName(l.Name()); slices.Contains(named[:i], named[i]) { // several may be of one kind and period
			return nil, fmt.Errorf("%w: limit %q twice for one key", stint.ErrLayers, l.Name())
		}
	}
	if o.Redis != nil {
		p.room = o.Redis.room()
	} else {
		var err error
		if p.memory, err = inMemory(o.Mode, o.Count, p.clock, &p.link); err != nil {
			return nil, err
		}
	}
	p.link.away = func() bool { return p.now >= o.AwayFrom && p.now < o.AwayTo }
	for i := range o.Count {
		one := &process{of: p}
		if o.Count > 1 {
			one.ahead = int64(o.Skew) * int64(i) / int64(o.Count-1)
		}
		p.all = append(p.all, one)
		if err := one.open(named); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

func (one *process) open(limits []stint.Limit) (err error) {
	p := one.of
	if one.store, err = one.main(); err != nil {
		return err
	}
	if p.flying {
		one.store = withRoom{one.store, p.flights.Over(func(all inflight.Counts) inflight.Counts { return &flights{all, &p.link} })}
	}
	if p.options.AwayTo > p.options.AwayFrom {
		one.store = fallback.New(one.store, fallback.Options{Local: memstore.New(memstore.Options{Now: one.clock}), Nodes: p.options.Count, PostByCaller: true})
	}
	if p.memory != nil && p.memory.part != nil {
		limits = p.memory.parts(limits)
	}
	one.limiter, err = stint.NewLimiter(one.store, "trial", limits...)
	return err
}

// main returns what the process shares with the others.
func (one *process) main() (stint.Store, error) {
	p := one.of
	if p.memory != nil {
		return p.memory.open(one.clock), nil
	}
	d := &driver{redis: p.options.Redis, link: &p.link, now: one.clock, server: p.clock, failed: &p.failed}
	store, err := d.open(p.room, redisstore.Modes{Nodes: p.options.Count})
	if err != nil {
		return nil, err
	}
	return store.Mode(p.options.Mode), nil
}

// clock is the server's.
func (p *Processes) clock() int64 { return p.now }

func (one *process) clock() int64 { return one.of.now + one.ahead }

// Take has the next process decide on an arrival, which does not come before the last
// one.
func (p *Processes) Take(ctx context.Context, a Arrival) (by int, d stint.Decision, err error) {
	p.end(a.At)
	if !p.back && p.options.AwayTo > p.options.AwayFrom && a.At >= p.options.AwayTo {
		p.now, p.back = p.options.AwayTo, true
		for _, one := range p.all {
			one.store.(*fallback.Store).Post()
		}
	}
	p.now, by = a.At, p.next
	p.next = (by + 1) % len(p.all)
	if !p.flying {
		d, err = p.all[by].limiter.Take(ctx, a.Key, a.Cost)
		return by, d, errors.Join(err, p.failed)
	}
	d, end, err := p.all[by].limiter.AcquireN(ctx, a.Key, a.Cost, 0)
	if err == nil && d.Allowed {
		until := addUpTo(addUpTo(a.At, int64(d.Delay)), int64(a.Lasts))
		p.running.Add(until, func() { p.now = until; end() })
	}
	return by, d, errors.Join(err, p.failed)
}

// end ends the requests that are over at a moment, each at its own.
func (p *Processes) end(at int64) { p.running.End(at) }

// Calls returns how often the processes have reached the server, the ends of requests
// included that are over at a moment.
func (p *Processes) Calls(at int64) int64 {
	p.end(at)
	return p.link.calls.Load()
}

// Close releases the processes. What is left on a Redis is its Remove's.
func (p *Processes) Close() (err error) {
	for _, one := range p.all {
		if one.store != nil {
			err = errors.Join(err, one.store.Close())
		}
	}
	return err
}
