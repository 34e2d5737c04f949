package trial

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/simulate"
)

// maxTries bounds how often one request is sent: under count_denied, a client that tries again
// faster than the limit never passes.
const maxTries = 1_000_000

// A Lap is the result of one phase.
type Lap struct {
	// Requests is how many requests the phase sent, and Dropped how many of them were denied and
	// not tried again.
	Requests, Dropped int64
	// Took runs from the start of the phase to its end: the slot at which the next request would be
	// due at the offered rate, or the moment the last request started, if that is later. So 10
	// requests at 1 a second take 10 s, though the tenth is sent at 9 s.
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

// decimal writes a number with at most the given number of decimals and no trailing zeros. A number
// that would be written as 0 keeps three digits.
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

// Drive plays a client that sends phases of requests, one request after another, to one key under
// all limits, and writes a line for each phase. The next request is sent at its slot, or right
// after the one before it has started if that is later. A denied request is sent again each retry
// until it passes, or dropped when retry is 0. The client waits for the delay of a queue. What the
// key has used carries over to the next phase. Pauses print nothing.
func Drive(w io.Writer, limits []stint.Limit, phases []Phase, retry time.Duration) error {
	var texts []string
	for _, l := range limits {
		texts = append(texts, l.String())
	}
	runner, err := simulate.InMemory(texts, 0)
	if err != nil {
		return err
	}
	c := &Client{Take: runner.Take, Retry: patience(limits, int64(retry)), Until: math.MaxInt64}
	for i, p := range phases {
		lap, err := c.lap(p)
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

// lap sends one phase. The client then stands at the end of the phase.
func (c *Client) lap(p Phase) (Lap, error) {
	lap, start := Lap{Requests: p.Requests}, c.now
	for i := range p.Requests {
		passed, err := c.Send(simulate.Request{At: start + p.Slot(i), Cost: 1, Lasts: p.Lasts})
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

// A Client sends one request after another: each at its own time, or when the request before it has
// started or was dropped, if that is later.
type Client struct {
	Take func(simulate.Request) (stint.Decision, error)
	// Retry returns how many nanoseconds after a denial the request is sent again, or a value below
	// 0 to drop it. The number of the denied try counts from 1.
	Retry func(try int, q simulate.Request, d stint.Decision) (int64, error)
	// Until is when the client stops sending.
	Until int64

	now int64
}

// Send sends a request until it passes or is dropped.
func (c *Client) Send(q simulate.Request) (passed bool, err error) {
	q.At = max(q.At, c.now)
	for try := 1; q.At < c.Until; try++ {
		d, err := c.Take(q)
		wait := int64(d.Delay)
		if err == nil && !d.Allowed {
			wait, err = c.Retry(try, q, d)
		}
		if err != nil {
			return false, err
		}
		q.At += min(max(wait, 0), c.Until-q.At)
		if c.now = q.At; d.Allowed || wait < 0 {
			return d.Allowed, nil
		}
	}
	return false, nil
}

// patience returns a [Client]'s Retry that tries again each retry, or never if retry is 0. Tries
// before the RetryAfter is over would all be denied and change nothing, so it skips them, unless
// denied requests count, or the RetryAfter is not known.
func patience(limits []stint.Limit, retry int64) func(int, simulate.Request, stint.Decision) (int64, error) {
	counts, stays := slices.ContainsFunc(limits, stint.Limit.CountDenied), ""
	if counts {
		stays = ": with count_denied each try counts, so a client that tries faster than the limit stays out for good"
	}
	skips := !counts && !slices.ContainsFunc(limits, stint.Limit.InFlight)
	return func(try int, q simulate.Request, d stint.Decision) (int64, error) {
		if retry <= 0 {
			return -1, nil
		}
		tries := int64(1)
		if wait, ok := d.RetryAfter.Duration(); ok && skips {
			tries = max((int64(wait)-1)/retry+1, 1)
		}
		switch {
		case try == maxTries:
			return 0, fmt.Errorf("still denied after %d tries%s", maxTries, stays)
		case tries > (maxSpan-1)/retry || q.At > maxSpan:
			return 0, fmt.Errorf("would pass only after %v", d.RetryAfter)
		}
		return tries * retry, nil
	}
}
