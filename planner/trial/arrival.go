package trial

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/stint-dev/stint/simulate"
)

// maxTime is the latest moment of a comparison, in the year 2116: waits and columns after it stay
// within int64 nanoseconds.
const maxTime = math.MaxInt64 / 2

// Arrivals returns the requests of consecutive phases, each at its slot, from the epoch on. It also
// returns when the last phase ends.
func Arrivals(phases []Phase) (arrivals []simulate.Request, end int64) {
	for _, p := range phases {
		arrivals = slices.Grow(arrivals, int(min(p.Requests, 1<<20)))
		for i := range p.Requests {
			arrivals = append(arrivals, simulate.Request{At: end + p.Slot(i), Cost: 1, Lasts: p.Lasts})
		}
		end += p.Length()
	}
	return arrivals, end
}

// ReadArrivals reads arrivals as the lines that package simulate reads: takes with a time, a key
// and a cost. A line is decided at the greatest time of any line so far. The error of a line is a
// [*simulate.LineError].
func ReadArrivals(in io.Reader) (arrivals []simulate.Request, err error) {
	now := int64(0)
	err = simulate.EachLine(in, func(_ int, line []byte) error {
		op, err := simulate.ParseOp(line)
		if err == nil {
			err = checkArrival(op, len(arrivals))
		}
		now = max(now, op.At)
		arrivals = append(arrivals, simulate.Request{At: now, Key: op.Key, Cost: op.Cost, Lasts: op.Lasts})
		return err
	})
	return arrivals, err
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
