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

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/redisstore"
)

// New returns a driver on a client: one server, a Sentinel set or a cluster.
// The client stays the caller's to close.
func New(client redis.UniversalClient) redisstore.Driver { return driver{client} }

type driver struct{ client redis.UniversalClient }

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
	if err := d.client.Process(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
		return nil, replied(err)
	}
	return cmd.Val(), nil
}

// Cluster implements [redisstore.Driver].
func (d driver) Cluster() bool {
	_, ok := d.client.(*redis.ClusterClient)
	return ok
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
