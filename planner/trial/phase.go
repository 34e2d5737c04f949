// Package trial plays arrivals to limits on a virtual clock: what would each limit have let
// through, and when? Nothing here waits, so a day of traffic takes as long as its decisions do.
//
// [Drive] plays a client that sends one request after another. [Compare] plays the same arrivals to
// several limits side by side, and [Comparison.Text] draws the result for a terminal of 80 columns.
package trial

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// MaxRequests bounds what one trial holds in memory.
const MaxRequests = 1_000_000

// maxSpan bounds the length of a load, so that its times stay far below the greatest int64
// nanoseconds.
const maxSpan = math.MaxInt64 / 8

// A Phase is a stretch of a load: requests at an even rate, requests all at once, or a pause.
type Phase struct {
	// Requests is how many requests are sent; 0 in a pause.
	Requests int64
	// Lasts is how long each request is in flight, under limits in flight.
	Lasts time.Duration
	// count requests are sent each period nanoseconds. With count 0, all are sent at the start, and
	// then period passes.
	count, period int64
}

const phaseShapes = `write "10@1/s" (10 requests at 1 a second), "20@once" or "+5s" (a pause)`

// ParsePhases reads consecutive phases, separated by blanks:
//
//	10@1/s      10 requests at one a second
//	20@once     20 requests at one instant
//	+5s         a pause of 5 s
func ParsePhases(text string) ([]Phase, error) {
	var phases []Phase
	var requests, span int64
	for _, word := range strings.Fields(text) {
		p, err := parsePhase(word)
		if err != nil {
			return nil, err
		}
		requests += p.Requests
		if requests > MaxRequests {
			return nil, fmt.Errorf("more than %d requests up to %q", MaxRequests, word)
		}
		span += p.Length()
		if span > maxSpan {
			return nil, fmt.Errorf("the phases up to %q take more than %.0f years", word, time.Duration(maxSpan).Hours()/24/365)
		}
		phases = append(phases, p)
	}
	if requests == 0 {
		return nil, fmt.Errorf("no requests in %q: %s", text, phaseShapes)
	}
	return phases, nil
}

func parsePhase(word string) (Phase, error) {
	if pause, ok := strings.CutPrefix(word, "+"); ok {
		d, err := time.ParseDuration(pause)
		if err != nil || d <= 0 || d > maxSpan {
			return Phase{}, fmt.Errorf("phase %q is no pause: %s", word, phaseShapes)
		}
		return Phase{period: int64(d)}, nil
	}
	number, rate, ok := strings.Cut(word, "@")
	n, err := strconv.ParseInt(strings.ReplaceAll(number, "_", ""), 10, 64)
	if !ok || err != nil || n < 1 || n > MaxRequests {
		return Phase{}, fmt.Errorf("phase %q: want from 1 to %d requests and a rate: %s", word, MaxRequests, phaseShapes)
	}
	if rate == "once" {
		return Phase{Requests: n}, nil
	}
	limit, err := stint.Parse(rate)
	if err != nil || !strings.Contains(rate, "/") || limit != stint.New(limit.Count(), limit.Period()) {
		return Phase{}, fmt.Errorf("phase %q: %q is no rate: %s", word, rate, phaseShapes)
	}
	p := Phase{Requests: n, count: limit.Count(), period: int64(limit.Period())}
	if p.Length() > maxSpan {
		return Phase{}, fmt.Errorf("phase %q takes more than %.0f years", word, time.Duration(maxSpan).Hours()/24/365)
	}
	return p, nil
}

// Slot returns when request i of the phase is due, counted from 0, in nanoseconds from the start of
// the phase. The exact value is rounded up once, so that errors do not add up.
func (p Phase) Slot(i int64) int64 {
	if p.count == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(i), uint64(p.period))
	lo, carry := bits.Add64(lo, uint64(p.count-1), 0)
	hi += carry
	if hi >= uint64(p.count) {
		return math.MaxInt64
	}
	at, _ := bits.Div64(hi, lo, uint64(p.count))
	return int64(min(at, math.MaxInt64))
}

// Length returns how long the phase takes if no request waits: up to the slot at which the next
// request would be due.
func (p Phase) Length() int64 {
	if p.count == 0 {
		return p.period
	}
	return p.Slot(p.Requests)
}
