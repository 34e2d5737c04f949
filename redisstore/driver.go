package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Driver is what a store needs of a Redis client. It must not send a call again that
// may have run.
//
// An error that the server answered with is a [ReplyError]. The store takes any other
// error as ambiguous, except a failed dial and an [ErrNotExecuted]. All methods may be
// called from many goroutines at once.
type Driver interface {
	// EvalSHA runs a loaded script on the node that serves the keys, and
	// returns int64, string, []any of these, or nil.
	EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error)
	// Eval runs a script by its text, if the server has not loaded it. The server
	// keeps the script from then on.
	Eval(ctx context.Context, script string, keys, args []string) (any, error)
	// Cluster reports whether the server is a cluster, in which keys of different
	// slots may be on different nodes. It may be called at any time, and may return
	// false until a connection has been made.
	Cluster() bool
	// Close releases the client.
	Close()
}

// A ReplyError is an error that the server answered with: "WRONGTYPE …".
type ReplyError string

// Error returns the text of the server.
func (e ReplyError) Error() string { return string(e) }

// NewDriver returns the driver that a store uses for [Options].Client. It is for a driver of
// your own that wraps it. Closing it leaves the client open.
func NewDriver(client redis.UniversalClient) Driver { return newDriver(client) }

func newDriver(client redis.UniversalClient) *driver {
	d := &driver{client: client}
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		d.obeys = c.Options().ContextTimeoutEnabled
	case interface {
		Options() *redis.ClusterOptions
		ReloadState(ctx context.Context)
	}:
		d.obeys, d.reload = c.Options().ContextTimeoutEnabled, c.ReloadState
	case interface{ Options() *redis.RingOptions }:
		d.refusal = fmt.Errorf("%w: a %T has the keys of one call in several servers: %s", ErrConfiguration, client, clientsThatServe)
	default:
		d.refusal = fmt.Errorf("%w: a %T does not say by a method Options what it is a client of: %s", ErrConfiguration, client, clientsThatServe)
	}
	return d
}

const clientsThatServe = "give a *redis.Client (of one server or a Sentinel set), a *redis.ClusterClient, or what embeds one of these"

// driver implements [Driver] and [Topology] on go-redis.
type driver struct {
	client  redis.UniversalClient
	obeys   bool                  // calls end with their context
	reload  func(context.Context) // in a cluster: asks which node serves which slots
	refusal error                 // the error of every call, if a store cannot use the client
}

var evalSHA, eval = []byte("evalsha"), []byte("eval")

// EvalSHA implements [Driver].
func (d *driver) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	return d.run(ctx, newCommand(ctx, evalSHA, sha, keys, args))
}

// Eval implements [Driver].
func (d *driver) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return d.run(ctx, newCommand(ctx, eval, script, keys, args))
}

func (d *driver) run(ctx context.Context, cmd *command) (any, error) {
	if d.refusal != nil {
		return nil, d.refusal
	}
	if err := d.process(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
		d.lookAround(err)
		return nil, cmd.ended(err)
	}
	return cmd.Val(), nil
}

// process sends a command, and waits for its end no longer than ctx allows.
func (d *driver) process(ctx context.Context, cmd redis.Cmder) error {
	if d.obeys {
		return d.client.Process(ctx, cmd)
	}
	done := make(chan error, 1)
	go func() { done <- d.client.Process(ctx, cmd) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lookAround makes a cluster's client ask which node serves which slots, in the background
// and once at a time, if err says that a node did not answer or does not serve. go-redis
// itself would notice by a retry on another node, which is turned off, or after a minute.
func (d *driver) lookAround(err error) {
	var said redis.Error
	if d.reload != nil && (!errors.As(err, &said) || strings.HasPrefix(said.Error(), "CLUSTERDOWN")) {
		d.reload(context.Background())
	}
}

// Cluster implements [Driver].
func (d *driver) Cluster() bool { return d.reload != nil }

// Slots implements [Topology].
func (d *driver) Slots(ctx context.Context) ([]SlotRange, error) {
	list, err := d.client.ClusterSlots(ctx).Result() // CLUSTER SHARDS needs Redis 7, and 6.2 works
	if err != nil {
		return nil, replied(err)
	}
	var all []SlotRange
	for _, one := range list {
		switch {
		case one.Start < 0 || one.Start > one.End || one.End >= slots:
			return nil, fmt.Errorf("redisstore: the cluster has slots %d to %d: 0 to %d", one.Start, one.End, slots-1)
		case len(one.Nodes) == 0:
			continue
		}
		name := one.Nodes[0].Addr
		if host, _, _ := net.SplitHostPort(name); (host == "" || host == "?") && one.Nodes[0].ID != "" { // nodes without an address may all have the same port
			name = one.Nodes[0].ID
		}
		all = append(all, SlotRange{First: uint16(one.Start), Last: uint16(one.End), Node: name})
	}
	return all, nil
}

// Close implements [Driver]. The client is the caller's.
func (*driver) Close() {}

// replied returns an error that the server answered with as a [ReplyError], and any other
// as it is.
func replied(err error) error {
	var said redis.Error
	if errors.As(err, &said) && !errors.Is(err, unsentError{}) {
		return ReplyError(said.Error())
	}
	return err
}

func oneSlot(keys []string) bool {
	for _, key := range keys[1:] {
		if slotOf(key) != slotOf(keys[0]) {
			return false
		}
	}
	return true
}
