package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Driver is what a store needs of a Redis client. It must not send a call
// again that may have run.
//
// Errors that the server answered with are [ReplyError]; what a driver returns
// else is taken as ambiguous, but for a failed dial. All methods may be called
// from many goroutines at once.
type Driver interface {
	// EvalSHA runs a loaded script on the node that serves the keys, and
	// returns int64, string, []any of these, or nil.
	EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error)
	// Eval runs a script by its text, where it is not loaded: the server keeps
	// it from then on.
	Eval(ctx context.Context, script string, keys, args []string) (any, error)
	// Cluster reports whether the server is a cluster, in which keys of
	// different slots are on different nodes. It may be called at any time, and
	// may say false until a connection has been made.
	Cluster() bool
	// Close releases the client.
	Close()
}

// A ReplyError is an error that the server answered with: "WRONGTYPE …".
type ReplyError string

// Error returns the server's words.
func (e ReplyError) Error() string { return string(e) }

// NewDriver returns the driver that a store uses for [Options].Client, for a driver of
// your own to stand in front of. Closing it leaves the client open.
func NewDriver(client redis.UniversalClient) Driver { return newDriver(client) }

func newDriver(client redis.UniversalClient) *driver { return &driver{client, obeys(client)} }

// driver implements [Driver] and [Topology] on go-redis. That sends a command up to three
// times more when no answer comes, which would charge up to four times: for the calls of
// the script, and for them alone, this is turned off. What a cluster redirects was not run,
// and is still sent on.
type driver struct {
	client redis.UniversalClient
	obeys  bool // calls end with their context
}

func obeys(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// once is a command that is not sent again.
type once struct{ *redis.Cmd }

// NoRetry says so to go-redis.
func (once) NoRetry() bool { return true }

// EvalSHA implements [Driver].
func (d *driver) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	return d.run(ctx, "evalsha", sha, keys, args)
}

// Eval implements [Driver].
func (d *driver) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return d.run(ctx, "eval", script, keys, args)
}

func (d *driver) run(ctx context.Context, verb, script string, keys, args []string) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	for _, arg := range args {
		all = append(all, arg)
	}
	cmd := once{redis.NewCmd(ctx, all...)}
	cmd.SetFirstKeyPos(3)
	if err := d.process(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
		d.lookAround(err)
		return nil, replied(err)
	}
	return cmd.Val(), nil
}

// process sends a command, and waits for its end no longer than ctx allows.
func (d *driver) process(ctx context.Context, cmd redis.Cmder) error {
	if _, ring := d.client.(*redis.Ring); ring {
		return ReplyError("CROSSSLOT a Ring of go-redis has the keys of one call in several servers: use one server, a Sentinel set or a cluster")
	}
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

// lookAround has a cluster's client ask who serves what now, in the background
// and once at a time, when a node did not answer or does not serve. Of itself
// go-redis finds out by trying again elsewhere, which is turned off, or after a
// minute.
func (d *driver) lookAround(err error) {
	cluster, ok := d.client.(*redis.ClusterClient)
	var said redis.Error
	if ok && (!errors.As(err, &said) || strings.HasPrefix(said.Error(), "CLUSTERDOWN")) {
		cluster.ReloadState(context.Background())
	}
}

// Cluster implements [Driver].
func (d *driver) Cluster() bool {
	_, ok := d.client.(*redis.ClusterClient)
	return ok
}

// Slots implements [Topology].
func (d *driver) Slots(ctx context.Context) ([]SlotRange, error) {
	list, err := d.client.ClusterSlots(ctx).Result() // CLUSTER SHARDS needs Redis 7, and 6.2 works
	if err != nil {
		return nil, replied(err)
	}
	var all []SlotRange
	for _, one := range list {
		if len(one.Nodes) == 0 {
			continue
		}
		name := one.Nodes[0].Addr
		if host, _, _ := net.SplitHostPort(name); (host == "" || host == "?") && one.Nodes[0].ID != "" { // nodes that do not say where they are may have one port
			name = one.Nodes[0].ID
		}
		all = append(all, SlotRange{First: uint16(one.Start), Last: uint16(one.End), Node: name})
	}
	return all, nil
}

// Close implements [Driver]. The client is the caller's.
func (*driver) Close() {}

// replied returns what the server said as a [ReplyError], and marks what was not sent.
func replied(err error) error {
	var said redis.Error
	switch {
	case errors.As(err, &said):
		return ReplyError(said.Error())
	case errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return fmt.Errorf("%w: %w", ErrNotExecuted, err)
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
