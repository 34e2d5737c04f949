package plan

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Rate is a count in a period.
type Rate struct {
	Count  int64
	Period time.Duration
}

// String returns the rate as limits write it: 5/s.
func (r Rate) String() string {
	switch r.Period {
	case time.Second:
		return fmt.Sprintf("%d/s", r.Count)
	case time.Minute:
		return fmt.Sprintf("%d/m", r.Count)
	}
	return fmt.Sprintf("%d/h", r.Count)
}

// rates are the rates to try. Each count divides its period, so that a unit takes a whole number of
// nanoseconds.
var rates = [...]Rate{
	{10, time.Hour}, {20, time.Hour},
	{1, time.Minute}, {2, time.Minute}, {5, time.Minute}, {10, time.Minute}, {20, time.Minute},
	{1, time.Second}, {2, time.Second}, {5, time.Second}, {10, time.Second}, {20, time.Second},
	{50, time.Second}, {100, time.Second}, {200, time.Second}, {500, time.Second}, {1000, time.Second},
}

// unit returns how long one unit takes, in nanoseconds.
func (r Rate) unit() int64 { return int64(r.Period) / r.Count }

var rateUnits = func() (units [len(rates)]int64) {
	for i, r := range rates {
		units[i] = r.unit()
	}
	return units
}()

// A demand is the arrival curve of one client: for each rate, the most units by which a bucket that
// denies nothing was ever ahead, rounded up. That is the least burst which lets all requests
// through; a test compares it with the engine.
//
// Rates go from slow to fast, and a bucket that is full at one rate is full at all faster ones. So
// a request after a pause needs work only for the slow rates: from idle on, each bucket holds that
// request alone, and its level follows from that.
type demand struct {
	last int64 // when the last request came, and its cost
	cost int64
	idle int32
	// alone is the most that the fastest bucket was ahead. A slower bucket was ahead at least as
	// far.
	alone  uint32
	levels [len(rates)]level
}

// A level is the state of a client at one rate.
type level struct {
	tat  int64  // when the bucket is full again; valid below idle
	most uint32 // the most that it was ever ahead
}

// A curve has the arrival curves of all clients. It is a sink.
type curve struct {
	demands pages[demand]

	n    int // number of clients
	tops [len(rates)][]uint64
}

// longestCost and longestWait keep sums within int64 and uint32. Clients that reach them are far
// above any limit that would be proposed.
const (
	longestCost = 1 << 20
	longestWait = 1 << 61
)

func (c *curve) add(events []event) {
	for _, e := range events {
		c.demands.at(e.id).add(e.at, min(e.cost, longestCost))
	}
}

// within reports whether a burst at a rate denies the client nothing.
func (d *demand) within(rate int, burst int64) bool {
	most := int64(d.levels[rate].most)
	return most <= burst && most < longestCost
}

// add adds one request.
func (d *demand) add(at, cost int64) {
	idle, alone := len(rates), int(d.idle)
	for k := range d.levels {
		one, unit := &d.levels[k], rateUnits[k]
		tat := one.tat
		if k >= alone {
			tat = d.last + d.cost*unit
		}
		if tat <= at {
			idle = k
			break
		}
		t := min(tat+cost*unit, at+longestWait)
		one.tat = t
		if ahead := t - at; ahead > int64(one.most)*unit {
			one.rise(ahead, unit)
		}
	}
	d.last, d.cost, d.idle = at, cost, int32(idle)
	if alone := uint32(cost); idle < len(rates) && alone > d.alone {
		for k := idle; k < len(rates); k++ {
			d.levels[k].most = max(d.levels[k].most, alone)
		}
		d.alone = alone
	} else if idle == len(rates) {
		d.alone = d.levels[len(rates)-1].most
	}
}

// rise records that a bucket is further ahead than ever. Mostly that is by one unit, for which no
// division is needed.
func (l *level) rise(ahead, unit int64) {
	if l.most++; ahead > int64(l.most)*unit {
		l.most = uint32(min((ahead+unit-1)/unit, math.MaxUint32))
	}
}

// settle ranks the clients at each rate after the last event. Of n clients it keeps the keep(n)
// that need the most.
func (c *curve) settle(keep func(n int) int) {
	c.demands.each(func(_ uint32, d *demand) {
		if d.levels[0].most > 0 {
			c.n++
		}
	})
	if c.n == 0 {
		return
	}
	kept := min(keep(c.n), c.n)
	inParts(len(rates), func(from, to int) { c.rank(from, to, kept) })
}

// inParts calls do for all of n, in one part for each core, all at once.
func inParts(n int, do func(from, to int)) {
	cores := min(runtime.GOMAXPROCS(0), n)
	var all sync.WaitGroup
	for i := range cores - 1 {
		all.Go(func() { do(i*n/cores, (i+1)*n/cores) })
	}
	do((cores-1)*n/cores, n)
	all.Wait()
}

// rank ranks all clients at some of the rates, and keeps the given number of them.
func (c *curve) rank(from, to, kept int) {
	all := make([]uint64, 0, c.n)
	for i := from; i < to; i++ {
		all = all[:0]
		c.demands.each(func(id uint32, d *demand) {
			if most := d.levels[i].most; most > 0 {
				all = append(all, uint64(most)<<32|uint64(^id))
			}
		})
		slices.Sort(all)
		top := slices.Clone(all[len(all)-kept:])
		slices.Reverse(top)
		c.tops[i] = top
	}
}

// ranked returns the clients that need the most at a rate, each packed with its need. Of equal
// needs, the client seen first is first.
func (c *curve) ranked(rate int) []uint64 { return c.tops[rate] }

// need and idOf unpack what ranked returns.
func need(packed uint64) int64  { return int64(packed >> 32) }
func idOf(packed uint64) uint32 { return ^uint32(packed) }

// above returns the clients that need more than a burst at a rate, among those that are kept.
func (c *curve) above(rate int, burst int64) (ids []uint32) {
	for _, packed := range c.tops[rate] {
		if need(packed) <= burst {
			break
		}
		ids = append(ids, idOf(packed))
	}
	return ids
}
