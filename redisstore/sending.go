package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A sending is the state of a call on its way to a connection: it waits, was sent, or was left
// while it waited, and then is never sent. Sent means that some of it may have been written.
type sending struct{ state atomic.Int32 }

// begin says that the call is about to be written, and reports whether it may be.
func (s *sending) begin() bool { return s.state.CompareAndSwap(callWaits, callSent) }

// leave gives the call up, and reports whether it was not sent and never will be.
func (s *sending) leave() bool {
	return s.state.CompareAndSwap(callWaits, callLeft) || s.state.Load() == callLeft
}

// again allows the call to be sent again, since the server has said that it did not run.
func (s *sending) again() { s.state.CompareAndSwap(callSent, callWaits) }

type sendingKey struct{}

// follow returns a sending, and a context by which a command of go-redis finds it. Other
// drivers do not tell when they write, so their calls count as sent from the start.
func (s *Store) follow(ctx context.Context) (context.Context, *sending) {
	call := &sending{}
	switch s.driver.(type) {
	case *driver, *connector:
		return context.WithValue(ctx, sendingKey{}, call), call
	}
	call.begin()
	return ctx, call
}

// A command is a command that go-redis writes at most once, unless the server says that it
// did not run. go-redis would try three times when no answer comes. If the caller has left, it
// is not written at all.
type command struct {
	*redis.Cmd
	verb verb
	own  sending // the state of the call, unless the context has one
}

// A verb is the first word of a command. go-redis asks for its bytes when it writes the
// command, and writes nothing of the command if it returns an error.
type verb struct {
	text []byte
	call *sending
	by   time.Time // later writes fail; zero for no bound
}

// newCommand returns a command that calls a script.
func newCommand(ctx context.Context, verb []byte, script string, keys, args []string) *command {
	c := &command{}
	c.verb.text, c.verb.call = verb, &c.own
	c.verb.by, _ = ctx.Deadline()
	if call, ok := ctx.Value(sendingKey{}).(*sending); ok {
		c.verb.call = call
	}
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, &c.verb, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	for _, arg := range args {
		all = append(all, arg)
	}
	c.Cmd = redis.NewCmd(ctx, all...)
	c.SetFirstKeyPos(3)
	return c
}

// MarshalBinary returns the verb. It notes that the command is about to be written, or fails
// if it must not be.
func (v *verb) MarshalBinary() ([]byte, error) {
	if !v.by.IsZero() && time.Now().After(v.by) {
		v.call.leave()
	}
	if !v.call.begin() {
		return nil, unsentError{}
	}
	return v.text, nil
}

// String is for logs of commands.
func (v *verb) String() string { return string(v.text) }

// An unsentError is the error of a command that is not written. go-redis takes it for a reply
// of the server, and so keeps the connection, which is well.
type unsentError struct{}

func (unsentError) Error() string { return "its caller has left, or it has been sent before" }

// Timeout reports that there was no answer in time.
func (unsentError) Timeout() bool { return true }

// RedisError implements [redis.Error].
func (unsentError) RedisError() {}

// Name implements [redis.Cmder].
func (c *command) Name() string { return c.verb.String() }

// NoRetry implements [redis.Cmder].
func (c *command) NoRetry() bool { return true }

// SetErr implements [redis.Cmder]. go-redis calls it after each attempt, of which redirections
// of a cluster take several.
func (c *command) SetErr(err error) {
	if err != nil && errors.Is(said[word(replied(err))], ErrNotExecuted) {
		c.verb.call.again()
	}
	c.Cmd.SetErr(err)
}

// ended returns the error that the command has ended with. If the command was not sent, or not
// all of it, it is an [ErrNotExecuted].
func (c *command) ended(err error) error {
	err = replied(err)
	var torn tornError
	if said[word(err)] == nil && (c.verb.call.leave() || errors.As(err, &torn)) {
		return fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	return err
}

// A tornError is the error of an incomplete write: a server does not run a command that it did
// not receive whole.
type tornError struct{ error }

// Unwrap returns the error of the write.
func (e tornError) Unwrap() error { return e.error }

// Write implements [net.Conn].
func (c *checkedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil && n < len(p) {
		err = tornError{err}
	}
	return n, err
}
