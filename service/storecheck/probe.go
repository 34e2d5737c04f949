package storecheck

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

// samples is how many decisions are timed.
const samples = 100

// A Latency is how long calls took, one after another.
type Latency struct{ Median, P99 time.Duration }

// A Clock is how far a server's clock is ahead of this machine's; it is right
// to within Within.
type Clock struct{ Ahead, Within time.Duration }

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

// scratch returns the prefix of keys of the check alone.
func scratch() string { return "stint:scratch-" + strings.ToLower(rand.Text()[:10]) }

// decisions times decisions of one limit, under a key that it removes.
func decisions(ctx context.Context, client redis.UniversalClient, prefix string) (l Latency, err error) {
	store, err := redisstore.New(redisstore.Options{Driver: redisstore.NewDriver(client), Prefix: prefix, Timeout: within})
	if err != nil {
		return l, err
	}
	defer store.Close() // the client stays open
	limiter, err := stint.NewLimiter(store, "judge", stint.PerSecond(1_000_000))
	if err != nil {
		return l, err
	}
	all := make([]time.Duration, samples)
	for i := range all {
		begun := time.Now()
		ok, err := limiter.Allow(ctx, "latency")
		if err == nil && !ok {
			err = errors.New("denied the first of a million")
		}
		if err != nil {
			return l, err
		}
		all[i] = time.Since(begun)
	}
	slices.Sort(all)
	return Latency{all[len(all)/2], all[len(all)*99/100]}, limiter.Reset(ctx, "latency")
}
