package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/cmd/internal/nodes"
	"github.com/stint-dev/stint/cmd/internal/scratch"
)

// checkShared refuses flags on stores and nodes that do nothing together.
func (c *simulateCmd) checkShared(phases bool) error {
	switch {
	case phases && c.Store != "":
		return usage("--store", "decides operations: leave --arrivals and --compare out")
	case phases && (c.Nodes != 0 || c.Mode != "strict"):
		return usage("--nodes and --mode", "are for operations: leave --arrivals and --compare out")
	case c.Nodes < 0:
		return usage("--nodes", "%d: at least 1", c.Nodes)
	case c.Mode != "strict" && c.Nodes == 0:
		return usage("--mode", "%s: --nodes says how many processes hold the limits together", c.Mode)
	case (c.Mode == "lease" || c.Mode == "async") && c.Store == "":
		return usage("--mode", "%s: --store names the Redis that the processes ask", c.Mode)
	}
	return nil
}

// inMemory returns the store of operations that need no Redis: one, which is
// what strict is whatever the nodes, or each node's with its part.
func (c *simulateCmd) inMemory(clock *simulate.Clock) stint.Store {
	if c.Mode != "share" {
		return memstore.New(memstore.Options{Now: clock.Now})
	}
	each := make([]stint.Store, c.Nodes)
	for i := range each {
		each[i] = memstore.New(memstore.Options{Now: clock.Now})
	}
	return nodes.New(each, func(l stint.Limit) stint.Limit { return fallback.Share(l, int64(c.Nodes)) })
}

// nodesOf returns the store of operations in a Redis: one, or one of each node
// in its mode.
func (c *simulateCmd) nodesOf(first *scratch.Store, o redisstore.Options) (stint.Store, error) {
	if c.Nodes == 0 {
		return first, nil
	}
	mode, err := redisstore.ParseMode(c.Mode)
	if err != nil {
		return nil, err
	}
	each := make([]stint.Store, c.Nodes)
	for i := range each {
		one, err := first.Another(o)
		if err != nil {
			return nil, err
		}
		each[i] = one.Mode(mode)
	}
	return nodes.New(each, nil), nil
}

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
	options := redisstore.Options{Now: clock.Now, Timeout: simulateTimeout, Modes: redisstore.Modes{Nodes: c.Nodes, DenialCache: -1}}
	store, err := scratch.Open(client, options)
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
	asked, err := c.nodesOf(store, options)
	if err != nil {
		return err
	}
	runner, err := simulate.New(asked, &clock, c.Limit)
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
