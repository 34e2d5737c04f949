package trial

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/stint-dev/stint/simulate"
)

// maxTime is the latest moment of a comparison, in the year 2116: waits and
// columns beyond it stay within int64 nanoseconds.
const maxTime = math.MaxInt64 / 2

// An Arrival is a request that comes in at its own time, whatever became of
// those before it.
type Arrival struct {
	At    int64 // nanoseconds since the Unix epoch, ≥ 0
	Key   string
	Cost  int64         // in units, ≥ 0
	Lasts time.Duration // in flight
}

// Arrivals returns the requests of phases that follow one another, each at its
// slot, from the epoch on, and when the last phase ends.
func Arrivals(phases []Phase) (arrivals []Arrival, end int64) {
	for _, p := range phases {
		arrivals = slices.Grow(arrivals, int(min(p.Requests, 1<<20)))
		for i := range p.Requests {
			arrivals = append(arrivals, Arrival{At: end + p.Slot(i), Cost: 1, Lasts: p.Lasts})
		}
		end += p.Length()
	}
	return arrivals, end
}

// ReadArrivals reads arrivals as the lines that package simulate reads: takes
// with a time, a key and a cost. A line is decided at the greatest time of any
// so far. The error of a line is a [*simulate.LineError].
func ReadArrivals(in io.Reader) ([]Arrival, error) {
	var arrivals []Arrival
	s := bufio.NewScanner(in)
	s.Buffer(nil, 1<<20)
	now := int64(0)
	number := 1
	for ; s.Scan(); number++ {
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 {
			continue
		}
		op, err := simulate.ParseOp(line)
		if err == nil {
			err = checkArrival(op, len(arrivals))
		}
		if err != nil {
			return nil, &simulate.LineError{Line: number, Err: err}
		}
		now = max(now, op.At)
		arrivals = append(arrivals, Arrival{At: now, Key: op.Key, Cost: op.Cost, Lasts: op.Lasts})
	}
	if err := s.Err(); err != nil {
		return nil, &simulate.LineError{Line: number, Err: err}
	}
	return arrivals, nil
}

func checkArrival(op simulate.Op, before int) error {
	switch {
	case op.Verb != "" && op.Verb != simulate.Take:
		return fmt.Errorf("op %q: only takes can be compared", op.Verb)
	case len(op.Limits) > 0:
		return errors.New(`"limits": the limits that are compared are named once, for all lines`)
	case op.At > maxTime:
		return fmt.Errorf("time %s is beyond the year 2116", op.T)
	case before == MaxRequests:
		return fmt.Errorf("more than %d arrivals", MaxRequests)
	}
	return nil
}
