package redisstore

import "context"

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
	// Close lets go of the client.
	Close()
}

// A ReplyError is an error that the server answered with: "WRONGTYPE …".
type ReplyError string

// Error returns the server's words.
func (e ReplyError) Error() string { return string(e) }
