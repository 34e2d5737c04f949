package rulesredis

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// An offset is how far the database's clock is ahead of this server's, in nanoseconds, as the
// worker measured it.
type offset struct {
	Ahead time.Duration `json:"ahead"`
	Doubt time.Duration `json:"doubt"`
}

// Clock implements [rulesource.Clock] for the database's clock.
func (s *Server) Clock(ctx context.Context) (ahead, doubt time.Duration, err error) {
	var o offset
	err = s.ask(ctx, func(ctx context.Context, client redis.UniversalClient) error {
		text, err := client.Get(ctx, s.key("clock")).Bytes()
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		ahead, doubt, err = own(ctx, client)
		return err
	})
	return ahead + o.Ahead, doubt + o.Doubt, err
}

// own measures the clock of the server itself.
func own(ctx context.Context, client redis.UniversalClient) (ahead, doubt time.Duration, err error) {
	before := time.Now()
	shown, err := client.Time(ctx).Result()
	took := time.Since(before)
	return shown.Sub(before.Add(took / 2)), took / 2, err
}

// SetClock publishes how far the database's clock is ahead of this machine's, as [rulesource.Clock]
// returns it, for the nodes that read from this server.
func (s *Server) SetClock(ctx context.Context, ahead, doubt time.Duration) error {
	return s.ask(ctx, func(ctx context.Context, client redis.UniversalClient) error {
		ownAhead, ownDoubt, err := own(ctx, client)
		if err != nil {
			return err
		}
		text, err := json.Marshal(offset{ahead - ownAhead, doubt + ownDoubt})
		if err != nil {
			return err
		}
		return client.Set(ctx, s.key("clock"), text, 0).Err()
	})
}
