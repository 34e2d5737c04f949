package moving

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

func redisrateBefore(ctx context.Context, client *redis.Client, user string) (bool, time.Duration, error) {
	limiter := redis_rate.NewLimiter(client)
	res, err := limiter.Allow(ctx, user, redis_rate.PerMinute(100))
	if err != nil {
		return false, 0, err
	}
	return res.Allowed > 0, res.RetryAfter, nil
}

func redisrateAfter(ctx context.Context, client *redis.Client, user string) (bool, time.Duration, error) {
	store, err := redisstore.New(redisstore.Options{Client: client})
	if err != nil {
		return false, 0, err
	}
	defer store.Close()
	limiter, err := stint.NewLimiter(store, "users", stint.PerMinute(100))
	if err != nil {
		return false, 0, err
	}
	d, err := limiter.Take(ctx, user, 1)
	return d.Allowed, time.Duration(d.RetryAfter), err
}
