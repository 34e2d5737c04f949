package simulate

import (
	"context"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// This file is the way in which every command tries limits. The command reads requests in order of
// time, lets a Runner or Rules decide each, and gives each decision to a writer:
//
//	runner, err := InMemory([]string{"10/s"}, 0)
//	…
//	for _, q := range arrivals {
//		d, err := runner.Take(q)
//		…
//		row.Add(q, d)
//	}
//
//	                        reader                    player        writer
//	stint simulate          lines                     Runner.Do     lines
//	  --arrivals, --compare phases, lines             Runner.Take   a lap, a table, columns
//	  --rules               lines                     Rules.Decide  lines
//	stint test              the requests of a test    Rules.Decide  differences
//	stint rehearse          a recording, a log        Rules.Decide  two sides compared
//	stint lab               shapes, a log             Runner.Take   columns, each request
//
// The exception is stint plan. It decides a log under many candidates at once, so it uses the
// meters themselves on packed states of numbered clients. With a Runner for each candidate it would
// take 1.6 times as long for three limits, and 3 times for ten.

// A Request asks at its moment for units of a key.
type Request struct {
	At    int64 // nanoseconds since the Unix epoch
	Key   string
	Cost  int64         // in units, ≥ 0
	Lasts time.Duration // how long it is in flight, ≥ 0
}

// InMemory returns a Runner on a store in memory. A log may have mostLog entries; 0 means the
// default of package memstore.
func InMemory(limits []string, mostLog int64) (*Runner, error) {
	clock := new(Clock)
	return New(memstore.New(memstore.Options{Now: clock.Now, MaxLog: mostLog}), clock, limits)
}

// Take decides a request under the limits that all lines share. It is Do without the texts of an
// answer.
func (r *Runner) Take(q Request) (stint.Decision, error) {
	r.clock.Advance(q.At)
	if r.limiter != nil {
		return r.acquire(q)
	}
	return r.ask(meter.OpTake, q)
}

// Peek returns what Take would return, and takes nothing. Limits in flight can be peeked only where
// all limits are in flight; the first of them says what remains.
func (r *Runner) Peek(q Request) (stint.Decision, error) {
	r.clock.Advance(q.At)
	if r.limiter != nil {
		return r.look(q)
	}
	return r.ask(meter.OpPeek, q)
}

func (r *Runner) ask(what meter.Op, q Request) (stint.Decision, error) {
	if len(r.bounds) == 1 {
		return r.bounds[0].Decide(context.Background(), what, q.Key, q.Cost)
	}
	r.all(q.Key)
	return r.decide(what, q.Cost)
}

// A Clock is virtual time. It begins at the Unix epoch, moves only by Advance, and never goes back.
// The zero value is ready. Now may be called from many goroutines at once, the other methods from
// one at a time.
type Clock struct {
	now atomic.Int64
	due []due // in order of time
}

type due struct {
	at int64
	do func()
}

// Now returns the time in nanoseconds since the Unix epoch.
func (c *Clock) Now() int64 { return c.now.Load() }

// Advance moves the clock to a time, unless the clock is there already or later. On the way it runs
// everything that is due by then, with the clock at the moment at which it is due.
func (c *Clock) Advance(to int64) {
	now := c.Now()
	for len(c.due) > 0 && c.due[0].at <= max(to, now) {
		first := c.due[0]
		c.due[0] = due{} // lets the garbage collector free what do refers to
		c.due = c.due[1:]
		now = max(now, first.at)
		c.now.Store(now)
		first.do()
	}
	if to > now {
		c.now.Store(to)
	}
}

// After makes a later Advance call do when the clock comes to moment plus while, for example to end
// a request.
func (c *Clock) After(moment int64, while time.Duration, do func()) {
	at := later(moment, while)
	i := sort.Search(len(c.due), func(i int) bool { return c.due[i].at > at })
	c.due = slices.Insert(c.due, i, due{at, do})
}

// later adds to a moment without wrapping.
func later(at int64, by time.Duration) int64 {
	if by > 0 && at > math.MaxInt64-int64(by) {
		return math.MaxInt64
	}
	return at + int64(by)
}
