package trial

import (
	"context"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// ClusterOptions say how the nodes of a [Cluster] hold a limit together. Times are
// nanoseconds of the clock that all go by.
type ClusterOptions struct {
	// Redis is what the nodes share. Without it, modes strict and share are held in
	// memory, and the others are [ErrServer].
	Redis *Redis
	// Count is how many nodes there are, and Mode how they share the limit.
	Count int
	Mode  redisstore.Mode
	// From AwayFrom until AwayTo no node reaches the server: each then holds its
	// part of the limit by itself, as package fallback does.
	AwayFrom, AwayTo int64
	// Skew is how far the clock of the last node is ahead of that of the first;
	// those between lie evenly. The server's clock is the first node's.
	Skew time.Duration
}

// A Cluster is several processes that hold one limit over one server, on a
// virtual clock: each through the store that stint serve has. It may be used from
// one goroutine at a time.
type Cluster struct {
	options ClusterOptions
	memory  *memory // nil on a Redis
	room    string  // on a Redis
	link    link
	nodes   []*node
	now     int64
	next    int
	back    bool  // what was owed has been posted since the server is back
	failed  error // a call that should not have been
}

// A node is one process.
type node struct {
	cluster *Cluster
	ahead   int64 // its clock
	store   *fallback.Store
	bound   stint.Bound
}

// NewCluster returns processes that hold a limit.
func NewCluster(limit stint.Limit, o ClusterOptions) (*Cluster, error) {
	c := &Cluster{options: o}
	if o.Redis != nil {
		c.room = o.Redis.room()
	} else {
		var err error
		if c.memory, err = inMemory(o.Mode, o.Count, c.clock, &c.link); err != nil {
			return nil, err
		}
		if c.memory.part != nil {
			limit = c.memory.part(limit)
		}
	}
	c.link.away = func() bool { return c.now >= o.AwayFrom && c.now < o.AwayTo }
	for i := range o.Count {
		n := &node{cluster: c}
		if o.Count > 1 {
			n.ahead = int64(o.Skew) * int64(i) / int64(o.Count-1)
		}
		if err := n.open(limit); err != nil {
			c.Close()
			return nil, err
		}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

func (n *node) open(limit stint.Limit) error {
	c := n.cluster
	main, err := n.main()
	if err != nil {
		return err
	}
	n.store = fallback.New(main, fallback.Options{
		Local: memstore.New(memstore.Options{Now: n.clock}), Nodes: c.options.Count, PostByCaller: true,
	})
	n.bound, err = n.store.Bind("lab", limit)
	return err
}

// main returns what the process shares with the others.
func (n *node) main() (stint.Store, error) {
	c := n.cluster
	if c.memory != nil {
		return c.memory.open(n.clock), nil
	}
	d := &driver{redis: c.options.Redis, link: &c.link, now: n.clock, server: c.clock, failed: &c.failed}
	store, err := d.open(c.room, redisstore.Modes{Nodes: c.options.Count})
	if err != nil {
		return nil, err
	}
	return store.Mode(c.options.Mode), nil
}

// clock is the server's.
func (c *Cluster) clock() int64 { return c.now }

func (n *node) clock() int64 { return n.cluster.now + n.ahead }

// Take has the next node decide, at a moment that is not before the last one's.
func (c *Cluster) Take(ctx context.Context, key string, now, cost int64) (by int, d stint.Decision, err error) {
	if !c.back && c.options.AwayTo > c.options.AwayFrom && now >= c.options.AwayTo {
		c.now, c.back = c.options.AwayTo, true
		for _, n := range c.nodes {
			n.store.Post()
		}
	}
	c.now = now
	by = c.next
	c.next = (by + 1) % len(c.nodes)
	if d, err = c.nodes[by].bound.Decide(ctx, meter.OpTake, key, cost); err == nil {
		err = c.failed
	}
	return by, d, err
}

// Calls returns how often the nodes have reached the server.
func (c *Cluster) Calls() int64 { return c.link.calls.Load() }

// Close releases the nodes.
func (c *Cluster) Close() {
	for _, n := range c.nodes {
		_ = n.store.Close() // what is left on a Redis is its Remove's
	}
}
