package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint"
)

// Connect returns a client of the servers that options name, such as those of [ParseURL],
// once one of them has answered: of the master that Sentinels watch, of a cluster, or of
// one server. Whether one address is that of a cluster, the server there says itself.
func Connect(ctx context.Context, o *redis.UniversalOptions) (redis.UniversalClient, error) {
	if o.MasterName == "" && (o.IsClusterMode || len(o.Addrs) > 1) {
		return connectCluster(ctx, o)
	}
	one := redis.NewUniversalClient(o)
	var err error
	if o.MasterName != "" {
		err = one.Ping(ctx).Err()
	} else {
		err = one.ClusterSlots(ctx).Err() // CLUSTER SHARDS needs Redis 7, and 6.2 works
		switch said := word(replied(err)); {
		case errors.Is(err, redis.Nil): // go-redis does not read an address that is null
			err = errors.New("the nodes of the cluster announce no address, so they cannot be found: set cluster-preferred-endpoint-type to ip")
		case said == "ERR", said == "NOPERM" && strings.Contains(err.Error(), "'cluster"): // no cluster, or one that may not be asked
			return one, nil
		}
	}
	if err == nil && o.MasterName != "" {
		return one, nil
	}
	_ = one.Close()
	if err != nil {
		return nil, err
	}
	return connectCluster(ctx, o)
}

func connectCluster(ctx context.Context, o *redis.UniversalOptions) (redis.UniversalClient, error) {
	of := o.Cluster()
	of.DisableRoutingPolicies = true // they ask for COMMAND, of each kind of command
	cluster := redis.NewClusterClient(of)
	if _, err := cluster.MasterForKey(ctx, ""); err != nil { // which nodes there are is not known
		_ = cluster.Close()
		return nil, err
	}
	return cluster, nil
}

// connector implements [Driver] with a client of the store's own, which it makes when a
// server first answers.
type connector struct {
	options *redis.UniversalOptions
	ready   atomic.Pointer[driver] // nil until there is one

	life    context.Context // ends when it is closed
	end     context.CancelFunc
	mu      sync.Mutex // guards what follows
	trying  *attempt   // under way, or the last one if it failed
	running sync.WaitGroup
}

// An attempt is one to connect.
type attempt struct {
	done  chan struct{}
	ended time.Time
	err   error
}

// between is how long a failed attempt speaks for the calls that come after it.
const between = 20 * time.Millisecond

// newConnector returns one for what a URL says, which does not connect yet.
func newConnector(o *redis.UniversalOptions) *connector {
	c := &connector{options: o}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// first tries to connect. The error is for what waiting does not mend.
func (c *connector) first() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := c.driver(ctx)
	switch word(err) {
	case "NOAUTH", "WRONGPASS":
		c.Close()
		return fmt.Errorf("redisstore: connecting: %w", classify(err))
	}
	return nil
}

// driver returns one that is connected, and waits for it as long as ctx allows.
func (c *connector) driver(ctx context.Context) (*driver, error) {
	if d := c.ready.Load(); d != nil {
		return d, nil
	}
	try := c.attempt()
	if try == nil {
		return nil, stint.ErrClosed
	}
	select {
	case <-try.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: connecting: %w", ErrNotExecuted, ctx.Err())
	}
	return c.ready.Load(), try.err
}

// attempt returns the one that is under way, or begins one.
func (c *connector) attempt() *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil
	}
	if try := c.trying; try != nil && (try.ended.IsZero() || c.ready.Load() != nil || time.Since(try.ended) < between) {
		return try
	}
	try := &attempt{done: make(chan struct{})}
	c.trying = try
	c.running.Go(func() { c.connect(try) })
	return try
}

func (c *connector) connect(try *attempt) {
	ctx, cancel := context.WithTimeout(c.life, 2*patience+c.options.DialTimeout*time.Duration(len(c.options.Addrs)))
	defer cancel()
	client, err := Connect(ctx, c.options)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(try.done)
	try.ended = time.Now()
	if err = replied(err); err == nil {
		c.ready.Store(newDriver(client))
	} else if try.err = err; word(err) == "" { // it did not speak: of a password, say
		try.err = fmt.Errorf("%w: connecting: %w", ErrNotExecuted, err)
	}
}

// EvalSHA implements [Driver].
func (c *connector) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	d, err := c.driver(ctx)
	if err != nil {
		return nil, err
	}
	return d.EvalSHA(ctx, sha, keys, args)
}

// Eval implements [Driver].
func (c *connector) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	d, err := c.driver(ctx)
	if err != nil {
		return nil, err
	}
	return d.Eval(ctx, script, keys, args)
}

// Cluster implements [Driver].
func (c *connector) Cluster() bool {
	d := c.ready.Load()
	return d != nil && d.Cluster()
}

// Slots implements [Topology].
func (c *connector) Slots(ctx context.Context) ([]SlotRange, error) {
	d, err := c.driver(ctx)
	if err != nil {
		return nil, err
	}
	return d.Slots(ctx)
}

// Close implements [Driver].
func (c *connector) Close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.running.Wait()
	if d := c.ready.Load(); d != nil {
		_ = d.client.Close()
	}
}
