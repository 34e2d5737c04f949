package nodes

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/planner/luaserver"
)

// Options say how the nodes of a [Cluster] hold a limit together. Times are
// nanoseconds of the clock that all go by.
type Options struct {
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
// virtual clock: each through the store that stint serve has, the server being
// the script in this process. It may be used from one goroutine at a time.
type Cluster struct {
	options Options
	server  *luaserver.Server
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
func NewCluster(limit stint.Limit, o Options) (*Cluster, error) {
	c := &Cluster{options: o, server: luaserver.New()}
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
	shared, err := redisstore.New(redisstore.Options{
		Driver: &link{c, n}, Now: n.clock, Timeout: time.Minute, Modes: redisstore.Modes{Nodes: c.options.Count},
	})
	if err != nil {
		return err
	}
	n.store = fallback.New(shared.Mode(c.options.Mode), fallback.Options{
		Local: memstore.New(memstore.Options{Now: n.clock}), Nodes: c.options.Count, PostByCaller: true,
	})
	n.bound, err = n.store.Bind("lab", limit)
	return err
}

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

// Away reports whether the server cannot be reached at a moment.
func (c *Cluster) Away(now int64) bool { return now >= c.options.AwayFrom && now < c.options.AwayTo }

// Calls returns how often the nodes have reached the server.
func (c *Cluster) Calls() int64 { return c.server.Calls() }

// Close releases the nodes.
func (c *Cluster) Close() {
	for _, n := range c.nodes {
		_ = n.store.Close() // all is in this process: nothing can be lost
	}
	c.server.Close()
}

// A link is what lies between a node and the server.
type link struct {
	cluster *Cluster
	node    *node
}

var _ redisstore.Driver = (*link)(nil)

// errAway is what a server says that has done nothing. It opens no breaker: that
// would be tried again by the clock of this machine.
var errAway = redisstore.ReplyError("NOREPLICAS the server cannot be reached")

// EvalSHA implements [redisstore.Driver].
func (l *link) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	if err := l.pass(args); err != nil {
		return nil, err
	}
	return l.cluster.server.EvalSHA(ctx, sha, keys, args)
}

// Eval implements [redisstore.Driver].
func (l *link) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	if l.cluster.Away(l.cluster.now) {
		return nil, errAway
	}
	return l.cluster.server.Eval(ctx, script, keys, args) // which pass has seen
}

// pass lets a call through to the server while that is there, with the server's
// time in place of the node's, which comes last.
func (l *link) pass(args []string) error {
	c, last := l.cluster, len(args)-1
	if c.Away(c.now) {
		return errAway
	}
	if last < 0 || args[last] != strconv.FormatInt(l.node.clock()/1000, 10) {
		c.failed = fmt.Errorf("nodes: a script was called without the time: %q", args)
		return c.failed
	}
	args[last] = strconv.FormatInt(c.now/1000, 10)
	return nil
}

// Cluster implements [redisstore.Driver].
func (l *link) Cluster() bool { return false }

// Close implements [redisstore.Driver]. The server is everybody's.
func (l *link) Close() {}
