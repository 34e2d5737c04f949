// Package goredis lets a store of package redisstore use a client of
// github.com/redis/go-redis/v9 that a program already has:
//
//	store, err := redisstore.New(redisstore.Options{Driver: goredis.New(client)})
//
// go-redis sends a command up to three times more when no answer comes, which
// would charge up to four times. This driver turns that off for the calls of the
// script, and for them alone; what a cluster redirects was not run, and is still
// sent on.
package goredis

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/redisstore"
)

// New returns a driver on a client: one server, a Sentinel set or a cluster, but
// no Ring, which has the keys of one call in several servers. The client stays
// the caller's to close. Set ContextTimeoutEnabled in its options: without it
// go-redis does not look at a context while it reads, so that calls need a
// goroutine each, which is left behind at the deadline.
func New(client redis.UniversalClient) redisstore.Driver { return driver{client, obeys(client)} }

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

// EvalSHA implements [redisstore.Driver].
func (d driver) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	return d.run(ctx, "evalsha", sha, keys, args)
}

// Eval implements [redisstore.Driver].
func (d driver) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	return d.run(ctx, "eval", script, keys, args)
}

func (d driver) run(ctx context.Context, verb, script string, keys, args []string) (any, error) {
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
func (d driver) process(ctx context.Context, cmd redis.Cmder) error {
	if _, ring := d.client.(*redis.Ring); ring {
		return redisstore.ReplyError("CROSSSLOT a Ring of go-redis has the keys of one call in several servers: use one server, a Sentinel set or a cluster")
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
func (d driver) lookAround(err error) {
	cluster, ok := d.client.(*redis.ClusterClient)
	if ok && (!isReply(err) || strings.HasPrefix(err.Error(), "CLUSTERDOWN")) {
		cluster.ReloadState(context.Background())
	}
}

// Cluster implements [redisstore.Driver].
func (d driver) Cluster() bool {
	_, ok := d.client.(*redis.ClusterClient)
	return ok
}

// Slots implements [redisstore.Topology].
func (d driver) Slots(ctx context.Context) ([]redisstore.SlotRange, error) {
	cluster, ok := d.client.(*redis.ClusterClient)
	if !ok {
		return nil, nil
	}
	list, err := cluster.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS needs Redis 7, and 6.2 works
	if err != nil {
		return nil, replied(err)
	}
	var all []redisstore.SlotRange
	for _, one := range list {
		if len(one.Nodes) == 0 {
			continue
		}
		name := one.Nodes[0].Addr
		if host, _, _ := net.SplitHostPort(name); (host == "" || host == "?") && one.Nodes[0].ID != "" { // it does not say where it is
			name = one.Nodes[0].ID
		}
		all = append(all, redisstore.SlotRange{First: uint16(one.Start), Last: uint16(one.End), Node: name})
	}
	return all, nil
}

// Close implements [redisstore.Driver]; the client is the caller's.
func (driver) Close() {}

// replied returns what the server said as a [redisstore.ReplyError].
func replied(err error) error {
	var said redis.Error
	if errors.As(err, &said) {
		return redisstore.ReplyError(said.Error())
	}
	return err
}

func isReply(err error) bool {
	var said redis.Error
	return errors.As(err, &said)
}
