package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

const clusterCallers = 64

// A sided is a contender, and what it is measured on.
type sided struct {
	contender
	on processors
}

// processors say how much processor time servers have used.
type processors interface {
	cpu() (time.Duration, error)
}

// Names of contenders in this chapter.
const (
	onServer, onCluster = ", one server", ", cluster"
	ourStore            = "stint"
)

// cluster measures decisions on a cluster beside the same on one server.
func (f *figures) cluster() error {
	s := f.server
	c, err := startCluster()
	if err != nil {
		return err
	}
	defer c.stop()
	open, done := opener()
	defer done()
	if err := f.spread(s, c, open); err != nil {
		return err
	}
	return f.pairs(c, open)
}

// An opening makes a store.
type opening func(redisstore.Options) (*redisstore.Store, error)

// opener returns what makes stores, and what closes them.
func opener() (open opening, done func()) {
	var stores []*redisstore.Store
	open = func(o redisstore.Options) (*redisstore.Store, error) {
		o.Timeout, o.NewKeys, o.Prefix = 10*time.Second, -1, "cluster"+strconv.Itoa(len(stores))
		store, err := redisstore.New(o)
		if err == nil {
			stores = append(stores, store)
		}
		return store, err
	}
	return open, func() {
		for _, one := range stores {
			_ = one.Close()
		}
	}
}

// spread measures one limit on one server and on a cluster.
func (f *figures) spread(s *redisServer, c *redisCluster, open opening) error {
	var all []sided
	for _, one := range []struct {
		name string
		o    redisstore.Options
		on   processors
	}{
		{ourStore + onServer, redisstore.Options{Client: s.client}, s},
		{ourStore + onCluster, redisstore.Options{Client: c.client}, c},
	} {
		store, err := open(one.o)
		if err != nil {
			return err
		}
		limiter, err := limiterOf(store, "spread", "1/s burst 1000000")
		if err != nil {
			return err
		}
		all = append(all, sided{contender{name: one.name, call: allow(limiter), made: callsOf(store)}, one.on})
	}
	limit := redis_rate.Limit{Rate: 1, Burst: plenty, Period: time.Second}
	for _, one := range []struct {
		name string
		rate *redis_rate.Limiter
		on   processors
	}{{redisRate + onServer, redis_rate.NewLimiter(s.client), s}, {redisRate + onCluster, redis_rate.NewLimiter(c.client), c}} {
		all = append(all, sided{contender{name: one.name, call: func(ctx context.Context, key string) error {
			r, err := one.rate.Allow(ctx, key, limit)
			return admitted(err == nil && r.Allowed == 1, err)
		}}, one.on})
	}
	results, err := f.turns(all, clusterCallers)
	if err != nil {
		return err
	}
	rows := [][]string{{fmt.Sprintf("one limit, gcra, %d callers", clusterCallers), "1/s", "decisions a call", "server, µs each"}}
	for _, r := range results {
		rows = append(rows, []string{r.name, fmt.Sprintf("%.0f", report.Median(r.pace)), r.decisionsEach(), report.Number(report.Median(r.cpu))})
	}
	f.Table(rows)
	cluster := of(results, ourStore+onCluster)
	f.AtMost(1.25, report.Ratio(cluster.cpu, of(results, ourStore+onServer).cpu), " ×", "cluster: processor time of the servers, beside one server")
	f.AtLeast(2, report.Ratio(cluster.pace, of(results, redisRate+onCluster).pace), " ×", "cluster: decisions a second, beside redis_rate")
	return nil
}

// callsOf returns how many calls a store has made.
func callsOf(store *redisstore.Store) func() uint64 {
	return func() uint64 { return store.Stats().Results.OK }
}

// decisionsEach returns how many decisions were in a call, if that is known.
func (r result) decisionsEach() string {
	if len(r.each) == 0 {
		return ""
	}
	return report.Number(report.Median(r.each))
}

// turns times contenders in turns.
func (f *figures) turns(all []sided, callers int) ([]result, error) {
	results := make([]result, len(all))
	for i, one := range all { // warm up: connections, scripts, keys
		results[i].name = one.name
		if _, _, err := one.run(callers, f.Slice/10); err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
	}
	for range f.Rounds {
		for i, one := range all {
			if err := results[i].crowd(one.on, one.contender, callers, f.Slice); err != nil {
				return nil, fmt.Errorf("%s, %d callers: %w", one.name, callers, err)
			}
		}
	}
	return results, nil
}
