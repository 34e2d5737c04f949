package storecheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

// A Latency is how long calls took, one after another.
type Latency struct{ Median, P99 time.Duration }

// MarshalJSON writes durations as Go does.
func (l Latency) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"median":"%v","p99":"%v"}`, l.Median, l.P99), nil
}

// A Clock is how far a server's clock is ahead of this machine's; it is right
// to within Within.
type Clock struct{ Ahead, Within time.Duration }

// MarshalJSON writes durations as Go does.
func (c Clock) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"ahead":"%v","within":"%v"}`, c.Ahead, c.Within), nil
}

// latency times a call.
func latency(samples int, call func() error) (Latency, error) {
	all := make([]time.Duration, samples)
	for i := range all {
		begun := time.Now()
		if err := call(); err != nil {
			return Latency{}, err
		}
		all[i] = time.Since(begun)
	}
	slices.Sort(all)
	return Latency{all[len(all)/2], all[min(len(all)*99/100, len(all)-1)]}, nil
}

// clockOf asks a server for the time, a few times; the quickest answer says
// most.
func clockOf(ctx context.Context, client redis.UniversalClient) (best Clock, err error) {
	for i := range 10 {
		begun := time.Now()
		shown, err := client.Time(ctx).Result()
		took := time.Since(begun)
		if err != nil {
			return best, err
		}
		middle := begun.Add(took / 2)
		if one := (Clock{shown.Sub(middle.Round(0)), took / 2}); i == 0 || one.Within < best.Within {
			best = one
		}
	}
	return best, nil
}

// operations runs every operation on a key of its own, by the short way through
// the script and by the long one, and compares the answers.
func operations(ctx context.Context, store *Scratch) error {
	for _, texts := range [][]string{{"10/24h"}, {"10/24h", "10/24h sliding_log", "10/24h sliding_buckets"}} {
		limits := make([]stint.Limit, len(texts))
		for i, text := range texts {
			var err error
			if limits[i], err = stint.Parse(text); err != nil {
				return err
			}
		}
		limiter, err := stint.NewLimiter(store, "check", limits...)
		if err != nil {
			return err
		}
		if err := verbs(ctx, limiter, "check"); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(texts, " + "), err)
		}
	}
	return nil
}

// verbs goes through the operations of one key of ten units, of which none
// comes back within minutes.
func verbs(ctx context.Context, l *stint.Limiter, key string) error {
	var reserved *stint.Reservation
	for _, step := range []struct {
		name    string
		do      func() (stint.Decision, error)
		allowed bool
		left    int64
	}{
		{"take 3", func() (stint.Decision, error) { return l.Take(ctx, key, 3) }, true, 7},
		{"peek 8", func() (stint.Decision, error) { return l.Peek(ctx, key, 8) }, false, 7},
		{"take 8", func() (stint.Decision, error) { return l.Take(ctx, key, 8) }, false, 7},
		{"take up to 20", func() (stint.Decision, error) { return l.TakeUpTo(ctx, key, 20) }, true, 0},
		{"refund 4", func() (stint.Decision, error) { return l.Refund(ctx, key, 4) }, true, 4},
		{"reserve 3", func() (d stint.Decision, err error) {
			d, reserved, err = l.Reserve(ctx, key, 3, time.Minute)
			return d, err
		}, true, 1},
		{"settle at 1", func() (stint.Decision, error) { return reserved.Settle(ctx, 1) }, true, 3},
		{"settle again", func() (stint.Decision, error) { return reserved.Settle(ctx, 3) }, true, 3},
		{"reset", func() (stint.Decision, error) {
			if err := l.Reset(ctx, key); err != nil {
				return stint.Decision{}, err
			}
			return l.Peek(ctx, key, 10)
		}, true, 10},
	} {
		d, err := step.do()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if d.Allowed != step.allowed || d.Remaining != step.left {
			return fmt.Errorf("%s: allowed %v with %d remaining, want %v with %d", step.name, d.Allowed, d.Remaining, step.allowed, step.left)
		}
	}
	return nil
}

// open returns a scratch store with a deadline that a slow server keeps too.
func open(client redis.UniversalClient, timeout time.Duration) (*Scratch, error) {
	return OpenScratch(client, redisstore.Options{Timeout: timeout, MaxLog: most})
}
