package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/simulate"

	"github.com/stint-dev/stint/planner/trial"
)

// mostNodes bounds what one simulation holds in memory.
const mostNodes = 1000

// checkShared refuses flags on stores and nodes that do nothing together.
func (c *simulateCmd) checkShared(comparing, arrivals bool) error {
	if _, err := redisstore.ParseMode(c.Mode); c.Mode != "" && err != nil {
		return usage("--mode", "%q is not known: strict, lease, async or share", c.Mode)
	}
	flying := slices.ContainsFunc(c.Limit, func(text string) bool { l, err := stint.Parse(text); return err == nil && l.InFlight() })
	switch {
	case flying && c.Store != "":
		return usage("--store", "limits in flight are simulated in memory: leave it out")
	case (comparing || arrivals && c.Nodes == 0) && c.Store != "":
		return usage("--store", "decides operations, and the arrivals of --nodes: leave it out")
	case comparing && (c.Nodes != 0 || c.Mode != ""):
		return usage("--nodes and --mode", "are for --limit: leave --compare out")
	case c.Nodes < 0 || c.Nodes > mostNodes:
		return usage("--nodes", "%d: from 1 to %d", c.Nodes, mostNodes)
	case c.Mode != "" && c.Nodes == 0:
		return usage("--mode", "%s: --nodes says how many processes hold the limits together", c.Mode)
	case c.Nodes > 0 && !arrivals:
		return usage("--nodes", "goes with --arrivals, which say what comes")
	case (c.Mode == "lease" || c.Mode == "async") && c.Store == "":
		return usage("--mode", "%s: what it does depends on a Redis: --store names one, such as redis://127.0.0.1:6379", c.Mode)
	case arrivals && c.Nodes > 0 && c.Retry != 0:
		return usage("--retry", "the arrivals of --nodes come at their own times: leave --retry out")
	}
	return nil
}

// mode returns the mode that was asked for, strict if none was.
func (c *simulateCmd) mode() redisstore.Mode {
	mode, err := redisstore.ParseMode(c.Mode)
	if err != nil {
		return redisstore.Strict
	}
	return mode
}

// operations answers the lines of standard input.
func (c *simulateCmd) operations(e *env) error {
	return c.onStore(e, func(redis *trial.Redis) error {
		var clock simulate.Clock
		store, err := openStore(redis, clock.Now)
		if err != nil {
			return err
		}
		defer store.Close()
		runner, err := simulate.New(store, &clock, c.Limit)
		if err != nil {
			return &usageError{"--limit", err}
		}
		return runner.Run(e.in, e.out)
	})
}

// openStore opens what decides operations: a line is answered by what stands, never by
// a denial that is remembered.
func openStore(redis *trial.Redis, now func() int64) (stint.Store, error) {
	if redis == nil {
		return memstore.New(memstore.Options{Now: now}), nil
	}
	return redis.Open(now, redisstore.Modes{DenialCache: -1})
}

// compareModes plays arrivals to the limits as several processes hold them:
// strictly, and in --mode or in all that can be shown.
func (c *simulateCmd) compareModes(e *env, limits []stint.Limit, phases []trial.Phase) error {
	arrivals, end := trial.Arrivals(phases)
	timed := slices.ContainsFunc(limits, func(l stint.Limit) bool { return !l.InFlight() })
	if !timed && c.Mode != "" && c.Mode != "strict" {
		return usage("--mode", "%s: no mode applies to limits in flight: leave it out", c.Mode)
	}
	return c.onStore(e, func(redis *trial.Redis) error {
		modes := []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async, redisstore.Share}
		switch {
		case c.Mode == "strict" || !timed:
			modes = modes[:1]
		case c.Mode != "":
			modes = []redisstore.Mode{redisstore.Strict, c.mode()}
		case redis == nil:
			modes = []redisstore.Mode{redisstore.Strict, redisstore.Share}
		}
		comparison, err := trial.CompareModes(limits, redis, c.Nodes, modes, arrivals, end, c.Stretch)
		return c.show(e, "--limit", comparison, err)
	})
}

// onStore runs a simulation on the Redis of --store, nil where there is none, and
// removes what it left there, also when it is interrupted.
func (c *simulateCmd) onStore(e *env, run func(*trial.Redis) error) (err error) {
	if c.Store == "" {
		return run(nil)
	}
	client, err := storeURL(c.Store).client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := signal.NotifyContext(e.ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	redis := trial.NewRedis(client)
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if failed := redis.Remove(bounded); failed != nil {
			err = errors.Join(err, fmt.Errorf("--store: %w", failed))
		}
	}()
	done := make(chan error, 1)
	go func() { done <- run(redis) }() // which may wait for a line that never comes
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New("interrupted")
	}
}

// client connects to the server of --store.
func (u storeURL) client() (rueidis.Client, error) {
	o, err := u.options()
	if err != nil {
		return nil, &usageError{"--store", err}
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("--store: %v: %w", u, err)
	}
	return client, nil
}
