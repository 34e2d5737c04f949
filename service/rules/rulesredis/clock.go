package rulesredis

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// offset is how far the database's clock is ahead of this server's, in
// nanoseconds, as the worker measured it.
type offset struct {
	Ahead time.Duration `json:"ahead"`
	Doubt time.Duration `json:"doubt"`
}

// Clock implements [rulesource.Clock] for the database's clock.
func (s *Server) Clock(ctx context.Context) (ahead, doubt time.Duration, err error) {
	var o offset
	err = s.ask(ctx, func(ctx context.Context, client rueidis.Client) error {
		text, err := client.Do(ctx, client.B().Get().Key(s.key("clock")).Build()).ToString()
		if err == nil {
			err = json.Unmarshal([]byte(text), &o)
		}
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		ahead, doubt, err = own(ctx, client)
		return err
	})
	return ahead + o.Ahead, doubt + o.Doubt, err
}

// own measures the own clock of a server.
func own(ctx context.Context, client rueidis.Client) (ahead, doubt time.Duration, err error) {
	before := time.Now()
	parts, err := client.Do(ctx, client.B().Time().Build()).AsStrSlice()
	if err != nil || len(parts) != 2 {
		return 0, 0, err
	}
	took := time.Since(before)
	seconds, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	micros, err := strconv.ParseInt(parts[1], 10, 64)
	shown := time.Unix(seconds, micros*1000)
	return shown.Sub(before.Add(took / 2)), took / 2, err
}

// SetClock says how far the database's clock is ahead of this machine's, as
// [rulesource.Clock] has it, for those who read here.
func (s *Server) SetClock(ctx context.Context, ahead, doubt time.Duration) error {
	return s.ask(ctx, func(ctx context.Context, client rueidis.Client) error {
		ownAhead, ownDoubt, err := own(ctx, client)
		if err != nil {
			return err
		}
		text, err := json.Marshal(offset{ahead - ownAhead, doubt + ownDoubt})
		if err != nil {
			return err
		}
		return client.Do(ctx, client.B().Set().Key(s.key("clock")).Value(string(text)).Build()).Error()
	})
}
