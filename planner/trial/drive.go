package trial

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
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
	alone, err := NewProcess(0, limits...)
	if err != nil {
		return err
	}
	c := &client{process: alone, counts: slices.ContainsFunc(limits, stint.Limit.CountDenied)}
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

// A client sends to one key of a process.
type client struct {
	now     int64
	process *Process
	counts  bool // a denial changes the state, so that none may be skipped
}

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
		d, err := c.process.Take(Arrival{At: c.now, Cost: 1, Lasts: lasts})
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
		if wait, ok := d.RetryAfter.Duration(); ok && !c.counts && !c.process.flying {
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
