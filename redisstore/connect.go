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

// Connect returns a client of the servers that options name, such as the options of
// [ParseURL], once a server has answered. It is a client of the master that Sentinels watch,
// of a cluster, or of one server; with one address, it asks the server whether it is of a
// cluster.
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
		case said == "ERR", said == "NOPERM" && strings.Contains(err.Error(), "'cluster"): // no cluster, or the user may not ask
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
	of.DisableRoutingPolicies = true // they need COMMAND, which the user may be denied
	cluster := redis.NewClusterClient(of)
	if _, err := cluster.MasterForKey(ctx, ""); err != nil { // the nodes of the cluster are not known
		_ = cluster.Close()
		return nil, err
	}
	return cluster, nil
}

// connector implements [Driver] with a client that the store owns. It makes the client when
// a server first answers, and makes a new one when a single server turns out to be a cluster.
type connector struct {
	options *redis.UniversalOptions
	ready   atomic.Pointer[driver] // nil until a server has answered

	life    context.Context // ends when the connector is closed
	end     context.CancelFunc
	mu      sync.Mutex // guards what follows
	trying  *attempt   // the attempt under way, or the last one
	clients []redis.UniversalClient
	running sync.WaitGroup
}

// An attempt is an attempt to connect, which several calls may wait for.
type attempt struct {
	done  chan struct{}
	ended time.Time
	err   error
}

// between is how long after a failed attempt calls fail with its error, before the next begins.
const between = 20 * time.Millisecond

// newConnector returns a connector for the options of a URL. It does not connect yet.
func newConnector(o *redis.UniversalOptions) *connector {
	c := &connector{options: o}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// first tries to connect. It returns an error only if waiting cannot help: the login is wrong.
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

// driver returns a driver that is connected, and waits for it as long as ctx allows.
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

// attempt returns the attempt under way, or begins one; nil if the connector is closed.
func (c *connector) attempt() *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil
	}
	if try := c.trying; try != nil && (try.ended.IsZero() || c.ready.Load() != nil || time.Since(try.ended) < between) {
		return try
	}
	return c.begin()
}

// redirected begins an attempt, once a second at most. It is called when a server names
// another server for a slot: then it is of a cluster, whatever it answered to Connect.
func (c *connector) redirected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() == nil && !c.trying.ended.IsZero() && time.Since(c.trying.ended) > patience {
		c.begin()
	}
}

// begin begins an attempt. The lock is held.
func (c *connector) begin() *attempt {
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
		c.take(client)
	} else if try.err = err; word(err) == "" { // no server answered
		try.err = fmt.Errorf("%w: connecting: %w", ErrNotExecuted, err)
	}
}

// take makes calls use a client, unless it is a second client of a single server. Earlier
// clients stay open, since calls may be on their way through them. The lock is held.
func (c *connector) take(client redis.UniversalClient) {
	d := newDriver(client)
	if c.ready.Load() != nil && !d.Cluster() {
		_ = client.Close()
		return
	}
	c.clients = append(c.clients, client)
	c.ready.Store(d)
}

// EvalSHA implements [Driver].
func (c *connector) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	d, err := c.driver(ctx)
	if err != nil {
		return nil, err
	}
	value, err := d.EvalSHA(ctx, sha, keys, args)
	if word(err) == "MOVED" && !d.Cluster() {
		c.redirected()
	}
	return value, err
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
	for _, client := range c.clients {
		_ = client.Close()
	}
}
