package storecheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
)

// A LogCost is how long calls on a long log took, the quickest of a few: a take,
// and to settle a reservation, which is the dearest there is. It grows with the
// entries, and the server does nothing else meanwhile.
type LogCost struct {
	Entries      int
	Take, Settle time.Duration
}

// MarshalJSON writes durations as Go does.
func (c LogCost) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"entries":%d,"take":"%v","settle":"%v"}`, c.Entries, c.Take, c.Settle), nil
}

// Of the logs that are timed: a fifth of the longest that redisstore keeps by
// default.
const (
	logEntries = 2_000
	logTries   = 5
)

// logs fills a log and times what is done to it.
func logs(ctx context.Context, store *Scratch) (c LogCost, err error) {
	limit, err := stint.Parse(fmt.Sprint(logEntries+4*logTries, "/24h sliding_log"))
	if err != nil {
		return c, err
	}
	limiter, err := stint.NewLimiter(store, "logs", limit)
	if err != nil {
		return c, err
	}
	fill := scenario{callers: 50, takes: logEntries / 50, cost: 1}
	if err := fill.take(ctx, limiter, "full"); err != nil {
		return c, err
	}
	c.Entries = logEntries
	for try := range logTries {
		begun := time.Now()
		if _, err := limiter.Take(ctx, "full", 1); err != nil {
			return c, err
		}
		took := time.Since(begun)
		_, r, err := limiter.Reserve(ctx, "full", 2, time.Minute)
		if err == nil && r == nil {
			err = errors.New("a reservation that there is room for is denied")
		}
		if err != nil {
			return c, err
		}
		begun = time.Now()
		if _, err := r.Settle(ctx, 1); err != nil {
			return c, err
		}
		settled := time.Since(begun)
		if try == 0 {
			c.Take, c.Settle = took, settled
		}
		c.Take, c.Settle = min(c.Take, took), min(c.Settle, settled)
	}
	return c, nil
}
