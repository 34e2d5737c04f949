package trial

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/simulate"
)

// maxTries bounds how often one request is sent: with count_denied, a client
// that tries again faster than the limit never passes.
const maxTries = 1_000_000

// A Lap is what became of one phase.
type Lap struct {
	// Requests is how many the phase sent, and Dropped how many of them were
	// denied and not tried again.
	Requests, Dropped int64
	// Took runs from the phase's start to its end: to the slot of the request
	// that would come next at the offered rate, or to the moment the last
	// request started, if that is later. So 10 requests at 1 a second take
	// 10 s, though the tenth is sent at 9 s.
	Took time.Duration
}

// String returns the lap as one line.
func (l Lap) String() string {
	passed := l.Requests - l.Dropped
	s := fmt.Sprintf("%d requests processed", passed)
	if l.Took > 0 {
		seconds := l.Took.Seconds()
		s += fmt.Sprintf(" in %s seconds. Rate: %s per second", decimal(seconds, 3), decimal(float64(passed)/seconds, 2))
	} else {
		s += " at once"
	}
	if l.Dropped > 0 {
		s += fmt.Sprintf(". Denied: %d of %d", l.Dropped, l.Requests)
	}
	return s
}

// decimal writes a number with at most the given number of decimals and no zeros
// behind them; a number that would vanish keeps three digits.
func decimal(x float64, decimals int) string {
	s := strconv.FormatFloat(x, 'f', decimals, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "0" && x > 0 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return s
}

// Drive plays a client that sends phases of requests, one request after
// another, to one key under all limits, and writes a line for each phase: the
// next request is sent at its slot, or right after the one before it has
// started if that is later. A denied request is sent again each retry until it
// passes, or dropped when retry is 0; the delay of a queue is waited. What the
// key has used runs on from phase to phase. Pauses print nothing.
func Drive(w io.Writer, limits []stint.Limit, phases []Phase, retry time.Duration) error {
	c, err := newClient(limits, nil)
	if err != nil {
		return err
	}
	defer c.close()
	for i, p := range phases {
		lap, err := c.lap(p, retry)
		if err != nil {
			return fmt.Errorf("phase %d: %w", i+1, err)
		}
		if p.Requests == 0 {
			continue
		}
		if _, err := fmt.Fprintln(w, lap); err != nil {
			return err
		}
	}
	return nil
}

// A client holds one set of limits and the virtual clock they go by.
type client struct {
	now     int64
	store   stint.Store
	limiter *stint.Limiter
	// counts reports that a denial changes the state, so that none may be
	// skipped.
	counts bool
	// flying reports that a limit is in flight, by the requests of running.
	flying  bool
	running simulate.Running
	// calls returns how often a server was asked; nil where there is none.
	calls func() int64
}

// newClient holds limits in memory, or in a way of several processes.
func newClient(limits []stint.Limit, held *way) (*client, error) {
	c := &client{}
	now := func() int64 { return c.now }
	var err error
	if held == nil {
		c.store = memstore.New(memstore.Options{Now: now})
	} else {
		shared, err := Processes(held.redis, held.nodes, held.mode, now)
		if err != nil {
			return nil, err
		}
		c.store, c.calls = shared, shared.Calls
	}
	named := make([]stint.Limit, len(limits))
	for i, l := range limits {
		if named[i] = l.WithName(l.Name()); slices.Contains(named[:i], named[i]) { // several may be of one kind and period
			c.close()
			return nil, fmt.Errorf("%w: limit %q twice for one key", stint.ErrLayers, l.Name())
		}
	}
	if c.limiter, err = stint.NewLimiter(c.store, "trial", named...); err != nil {
		c.close()
		return nil, err
	}
	for _, l := range limits {
		c.counts, c.flying = c.counts || l.CountDenied(), c.flying || l.InFlight()
	}
	return c, nil
}

// take decides a request now.
func (c *client) take(a Arrival) (stint.Decision, error) {
	if !c.flying {
		return c.limiter.Take(context.Background(), a.Key, a.Cost)
	}
	c.running.End(c.now)
	d, end, err := c.limiter.AcquireN(context.Background(), a.Key, a.Cost, 0)
	if err == nil && d.Allowed {
		c.running.Add(addUpTo(addUpTo(c.now, int64(d.Delay)), int64(a.Lasts)), end)
	}
	return d, err
}

func (c *client) close() { _ = c.store.Close() } // all is in this process: nothing can be lost

// lap sends one phase, and leaves the clock at its end.
func (c *client) lap(p Phase, retry time.Duration) (Lap, error) {
	lap, start := Lap{Requests: p.Requests}, c.now
	for i := range p.Requests {
		c.now = max(c.now, start+p.Slot(i))
		passed, err := c.send(p.Lasts, retry)
		if err != nil {
			return lap, fmt.Errorf("request %d: %w", i+1, err)
		}
		if !passed {
			lap.Dropped++
		}
	}
	c.now = max(c.now, start+p.Length())
	lap.Took = time.Duration(c.now - start)
	return lap, nil
}

// send sends one request until it passes, and leaves the clock at its start.
func (c *client) send(lasts, retry time.Duration) (passed bool, err error) {
	for range maxTries {
		d, err := c.take(Arrival{Cost: 1, Lasts: lasts})
		switch {
		case err != nil:
			return false, err
		case d.Allowed:
			c.now += int64(d.Delay)
			return true, nil
		case retry <= 0:
			return false, nil
		}
		tries := int64(1)
		if wait, ok := d.RetryAfter.Duration(); ok && !c.counts && !c.flying {
			// The tries before the wait is over would all be denied and change
			// nothing: skip them.
			tries = max((int64(wait)-1)/int64(retry)+1, 1)
		}
		if tries > (maxSpan-1)/int64(retry) || c.now > maxSpan {
			return false, fmt.Errorf("would pass only after %v", d.RetryAfter)
		}
		c.now += tries * int64(retry)
	}
	if c.counts {
		return false, fmt.Errorf("still denied after %d tries: with count_denied each try counts, so a client that tries faster than the limit stays out for good", maxTries)
	}
	return false, fmt.Errorf("still denied after %d tries", maxTries)
}
