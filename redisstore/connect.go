package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-dev/stint"
)

// connector implements [Driver] with a client of its own, which it makes when
// it is first needed, and anew when the server has become a replica: a client
// of one server would talk to that for ever.
type connector struct {
	option rueidis.ClientOption
	ready  atomic.Pointer[rueidisDriver] // nil until there is one

	mu      sync.Mutex // guards what follows
	trying  *attempt   // under way, or the last one if it failed
	closed  bool
	running sync.WaitGroup
}

// An attempt is one to connect.
type attempt struct {
	done   chan struct{}
	ended  time.Time
	driver *rueidisDriver
	err    error
}

// between is how long a failed attempt speaks for the calls that come after it.
const between = 20 * time.Millisecond

// first tries to connect. The error is for what waiting does not mend.
func (c *connector) first() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := c.driver(ctx)
	switch word(err) {
	case "NOAUTH", "WRONGPASS", "NOPERM":
		c.Close()
		return fmt.Errorf("redisstore: connecting: %w", classify(err))
	}
	return nil
}

// driver returns one that is connected, and waits for it as long as ctx allows.
func (c *connector) driver(ctx context.Context) (*rueidisDriver, error) {
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
	return try.driver, try.err
}

// attempt returns the one that is under way, or begins one.
func (c *connector) attempt() *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if try := c.trying; try != nil {
		select {
		case <-try.done:
			if try.err != nil && time.Since(try.ended) < between || try.err == nil && c.ready.Load() == try.driver {
				return try
			}
		default:
			return try
		}
	}
	try := &attempt{done: make(chan struct{})}
	c.trying = try
	c.running.Go(func() { c.connect(try) })
	return try
}

func (c *connector) connect(try *attempt) {
	client, err := rueidis.NewClient(c.option)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(try.done)
	try.ended = time.Now()
	switch {
	case err != nil:
		if word(replied(err)) != "" {
			try.err = replied(err) // it spoke: of a password, say
		} else {
			try.err = fmt.Errorf("%w: connecting: %w", ErrNotExecuted, err)
		}
	case c.closed:
		client.Close()
		try.err = stint.ErrClosed
	default:
		try.driver = &rueidisDriver{client}
		c.ready.Store(try.driver)
	}
}

// EvalSHA implements [Driver].
func (c *connector) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	return c.run(ctx, func(d *rueidisDriver) (any, error) { return d.EvalSHA(ctx, sha, keys, args) })
}

// Eval implements [Driver].
func (c *connector) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return c.run(ctx, func(d *rueidisDriver) (any, error) { return d.Eval(ctx, script, keys, args) })
}

func (c *connector) run(ctx context.Context, call func(*rueidisDriver) (any, error)) (any, error) {
	d, err := c.driver(ctx)
	if err != nil {
		return nil, err
	}
	v, err := call(d)
	if word(err) == "READONLY" && d.client.Mode() == rueidis.ClientModeStandalone && c.ready.CompareAndSwap(d, nil) {
		go d.Close() // it waits for the calls that are on their way
	}
	return v, err
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
	c.closed = true
	c.mu.Unlock()
	c.running.Wait() // an attempt ends within the dial's timeout
	if d := c.ready.Swap(nil); d != nil {
		d.Close()
	}
}
