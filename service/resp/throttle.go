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

// maxBuckets is how many limits that callers give are kept bound: the most recently used. Each
// costs the store a limit.
const maxBuckets = 1024

// throttleName is the name under which limits that callers give are bound: a key has one state for
// each period, whatever the count and burst.
const throttleName = "cl.throttle"

// A bucket is a limit as CL.THROTTLE gives it, bound in the store.
type bucket struct {
	burst, count, period int64
	bound                stint.Bound
}

// throttle holds the limits that callers have given.
type throttle struct {
	store stint.Store
	room  func(name string, l stint.Limit) error
	known recent.Values[[3]int64, bucket]
}

func newThrottle(o *Options) *throttle {
	t := &throttle{store: o.Store, room: o.RoomFor}
	t.known.Max, t.known.Forgot = maxBuckets, func() { o.Observer.Forgot(entrypoint) }
	return t
}

// find returns the bucket for the arguments of CL.THROTTLE: burst + 1 units at once, then count
// each period, which is in seconds. The error names the argument that is out of range.
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
		limit = limit.WithName(throttleName)
		if err := t.room(throttleName, limit); err != nil {
			return bucket{}, err
		}
		bound, err := t.store.Bind(throttleName, limit)
		return bucket{burst, count, period, bound}, err
	})
}

// clThrottle is CL.THROTTLE key max_burst count period [quantity].
func (c *conn) clThrottle(args [][]byte) {
	if len(args) > 6 {
		c.out.fail("ERR", "wrong number of arguments for 'cl.throttle' command")
		return
	}
	values := [4]int64{3: 1}
	names := [4]string{"max_burst", "count", "period", "quantity"}
	for i, arg := range args[2:] {
		n, ok := wholeNumber(arg)
		if !ok {
			c.out.fail("ERR", names[i]+" is no whole number of 64 bits")
			return
		}
		values[i] = n
	}
	burst, count, period, quantity := values[0], values[1], values[2], values[3]
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

// cell answers as redis-cell does: whether the request is limited, the limit, what remains, in how
// many seconds to retry (−1 if it passes, or never can), and in how many seconds the key is as if
// new.
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

// wholeNumber parses digits, with or without a minus sign before them.
func wholeNumber(b []byte) (int64, bool) {
	if len(b) == 1 && b[0] >= '0' && b[0] <= '9' {
		return int64(b[0] - '0'), true
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && b[0] != '+'
}
