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
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/planner/nodes"
	"github.com/stint-dev/stint/service/storecheck"
)

// checkShared refuses flags on stores and nodes that do nothing together.
func (c *simulateCmd) checkShared(comparing, arrivals bool) error {
	if _, err := redisstore.ParseMode(c.Mode); c.Mode != "" && err != nil {
		return usage("--mode", "%q is not known: strict, lease, async or share", c.Mode)
	}
	switch {
	case (comparing || arrivals) && c.Store != "":
		return usage("--store", "decides operations: leave --arrivals and --compare out")
	case comparing && (c.Nodes != 0 || c.Mode != ""):
		return usage("--nodes and --mode", "are for --limit: leave --compare out")
	case c.Nodes < 0 || c.Nodes > mostNodes:
		return usage("--nodes", "%d: from 1 to %d", c.Nodes, mostNodes)
	case c.Mode != "" && c.Mode != "strict" && c.Nodes == 0:
		return usage("--mode", "%s: --nodes says how many processes hold the limits together", c.Mode)
	case arrivals && c.Nodes > 0 && c.Retry != 0:
		return usage("--retry", "the arrivals of --nodes come at their own times: leave --retry out")
	}
	return nil
}

// nodesOf returns the store of operations in a Redis: one, or one of each node
// in its mode.
func (c *simulateCmd) nodesOf(first *storecheck.Scratch, o redisstore.Options) (stint.Store, error) {
	if c.Nodes == 0 {
		return first, nil
	}
	mode := modeOf(c.Mode)
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
	options := redisstore.Options{Now: clock.Now, Timeout: simulateTimeout, Modes: operationModes(c.Nodes)}
	store, err := storecheck.OpenScratch(client, options)
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
