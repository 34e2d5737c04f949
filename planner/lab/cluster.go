package lab

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/planner/trial"
)

// A cluster is several processes that hold a limit together, on a virtual clock.
type cluster struct {
	*trial.Processes
	redis *trial.Redis // nil where they hold it in memory
}

// open starts the processes that hold a limit together. Without a client they need no
// Redis.
func (s *Shared) open(l stint.Limit, client rueidis.Client) (c *cluster, err error) {
	mode, err := redisstore.ParseMode(s.Mode)
	if err != nil {
		return nil, err
	}
	c = &cluster{}
	if client != nil {
		c.redis = trial.NewRedis(client)
	}
	c.Processes, err = trial.NewProcesses([]stint.Limit{l}, trial.Options{
		Redis: c.redis, Count: s.Nodes, Mode: mode, AwayFrom: s.AwayFrom, AwayTo: s.AwayTo, Skew: time.Duration(s.Skew),
	})
	return c, err
}

// close ends the processes, and removes what they left in a Redis.
func (c *cluster) close(ctx context.Context) error {
	_ = c.Close() // what is left on a Redis is removed
	if c.redis == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return c.redis.Remove(ctx)
}

// modesOf returns the modes that can be shown: those that take units ahead, or decide
// on a sum that is late, only with a Redis.
func modesOf(client rueidis.Client) []string {
	if client == nil {
		return []string{"strict", "share"}
	}
	return modes
}

var errNoRedis = errors.New("lease and async are shown with a Redis: stint lab --store redis://127.0.0.1:6379")
