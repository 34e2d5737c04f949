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
	// Load loads the script on every node that may run it.
	Load(ctx context.Context, script string) error
	// Close lets go of the client.
	Close()
}

// A ReplyError is an error that the server answered with: "WRONGTYPE …".
type ReplyError string

// Error returns the server's words.
func (e ReplyError) Error() string { return string(e) }
