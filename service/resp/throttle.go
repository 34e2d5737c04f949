package resp

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"

	"github.com/stint-dev/stint/service/observe/recent"
)

// maxBuckets is how many of the limits that callers give are kept bound, those
// used most recently. Each is a limit of the store, with what that costs there.
const maxBuckets = 1024

// A bucket is a limit as CL.THROTTLE has it, bound to the store.
type bucket struct {
	burst, count, period int64
	bound                stint.Bound
}

// throttle knows the limits that callers have given.
type throttle struct {
	store stint.Store
	known recent.Values[[3]int64, bucket]
}

func newThrottle(store stint.Store, forgot func()) *throttle {
	t := &throttle{store: store}
	t.known.Max, t.known.Forgot = maxBuckets, forgot
	return t
}

// find returns the bucket for the arguments of CL.THROTTLE: burst + 1 units at once,
// then count a period, which is in seconds. The error says which argument is out of
// range.
func (t *throttle) find(burst, count, period int64) (bucket, error) {
	switch {
	case burst < 0 || burst == math.MaxInt64:
		return bucket{}, errors.New("max_burst must be from 0 to 9223372036854775806")
	case count < 1:
		return bucket{}, errors.New("count must be at least 1")
	case period < 1 || period > int64(math.MaxInt64/time.Second):
		return bucket{}, errors.New("period must be from 1 to 9223372036 seconds")
	}
	return t.known.Get([3]int64{burst, count, period}, func() (bucket, error) {
		limit := stint.New(count, time.Duration(period)*time.Second).WithBurst(burst + 1)
		if err := limit.Validate(); err != nil {
			return bucket{}, err
		}
		// One name: a key has one state for each period, whatever callers give.
		bound, err := t.store.Bind("cl.throttle", limit.WithName("cl.throttle"))
		return bucket{burst, count, period, bound}, err
	})
}

// clThrottle is CL.THROTTLE key max_burst count period [quantity].
func (c *conn) clThrottle(args [][]byte) {
	if len(args) > 6 {
		c.out.fail("ERR", "wrong number of arguments for 'cl.throttle' command")
		return
	}
	numbers := [4]int64{3: 1}
	names := [4]string{"max_burst", "count", "period", "quantity"}
	for i, arg := range args[2:] {
		n, ok := wholeNumber(arg)
		if !ok {
			c.out.fail("ERR", names[i]+" is no whole number of 64 bits")
			return
		}
		numbers[i] = n
	}
	burst, count, period, quantity := numbers[0], numbers[1], numbers[2], numbers[3]
	if quantity < 0 {
		c.out.fail("ERR", "quantity must be at least 0")
		return
	}
	if c.server.o.MapThrottle {
		c.mapped(string(args[1]), quantity)
		return
	}
	b := &c.last
	if b.bound == nil || b.burst != burst || b.count != count || b.period != period {
		found, err := c.server.throttle.find(burst, count, period)
		if err != nil {
			c.out.fail("ERR", err.Error())
			return
		}
		*b = found
	}
	op := meter.OpTake
	if quantity == 0 {
		op = meter.OpPeek
	}
	d, err := b.bound.Decide(context.Background(), op, string(args[1]), quantity)
	if err != nil {
		c.failed(err)
		return
	}
	c.cell(&d)
}

// cell answers as redis-cell does: whether it is limited, the limit, what
// remains, and in seconds when to come back (−1 if it may pass, or never can)
// and when the key is as new.
func (c *conn) cell(d *stint.Decision) {
	limited, retry := int64(0), int64(-1)
	if !d.Allowed {
		limited, retry = 1, d.RetryAfter.Seconds()
	}
	c.out.array(5)
	c.out.integer(limited)
	c.out.integer(d.Limit)
	c.out.integer(d.Remaining)
	c.out.integer(retry)
	c.out.integer(stint.Wait(d.ResetAfter).Seconds())
}

// wholeNumber reads digits, with a minus sign in front or not.
func wholeNumber(b []byte) (int64, bool) {
	if len(b) == 1 && b[0] >= '0' && b[0] <= '9' {
		return int64(b[0] - '0'), true
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && b[0] != '+'
}
