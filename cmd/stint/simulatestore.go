package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/cmd/internal/scratch"
)

// simulateTimeout is how long an operation may take: the times that matter are
// those of the lines.
const simulateTimeout = 10 * time.Second

// inRedis answers the lines of standard input by the script in a Redis, and
// removes what they left there, also when it is interrupted.
func (c *simulateCmd) inRedis(e *env) (err error) {
	u := storeURL(c.Store)
	o, err := u.options()
	if err != nil {
		return &usageError{"--store", err}
	}
	ctx, stop := signal.NotifyContext(e.ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	client, err := rueidis.NewClient(o)
	if err != nil {
		return fmt.Errorf("--store: %v: %w", u, err)
	}
	defer client.Close()
	var clock simulate.Clock
	store, err := scratch.Open(client, redisstore.Options{Now: clock.Now, Timeout: simulateTimeout})
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if failed := store.Remove(bounded); failed != nil {
			err = errors.Join(err, fmt.Errorf("--store: keys that begin with %s may be left there: %w", store.Prefix, failed))
		}
	}()
	runner, err := simulate.New(store, &clock, c.Limit)
	if err != nil {
		return &usageError{"--limit", err}
	}
	done := make(chan error, 1)
	go func() { done <- runner.Run(e.in, e.out) }() // which may wait for a line that never comes
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New("interrupted")
	}
}
