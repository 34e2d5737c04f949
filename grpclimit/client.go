package grpclimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
)

// A Client makes calls at the pace that Limiter sets and servers ask for: its interceptors
// wait. The zero value keeps to what servers say.
//
// Each call waits under Limiter. When a call ends with ResourceExhausted or Unavailable and a
// RetryInfo, further calls of the same key wait for that time. All waits end with the call's
// context. If a wait would last beyond its deadline, the call fails at once with a
// [*LimitedError], and nothing is sent. A stream waits when it opens, and with Messages for
// each message that it sends.
//
// A Client may be used for many connections and from many goroutines at once, and must not be
// copied.
type Client struct {
	// Limiter has the limits of this program. By default there are none.
	Limiter *stint.Limiter
	// Key says which calls share a limit, both Limiter's and the server's. The default is the
	// target of the connection and the full method.
	Key func(ctx context.Context, target, method string) string
	// Cost returns how many units of Limiter a call takes. The default is 1.
	Cost func(context.Context, Call) int64
	// Messages holds each message that a stream sends to Limiter, as well as its opening. The
	// default value is false.
	Messages bool
	// MaxRetries is how often a unary call is repeated if the server denies it and says how
	// long to wait. Set it only for servers that deny calls before they begin to handle them,
	// as the interceptors of this package do. The default value is 0.
	MaxRetries int
	// MaxPause is the longest pause that a server can ask for. After so long, a call is tried
	// even if the server asked for more. The default value is 1 hour.
	MaxPause time.Duration

	mu      sync.Mutex
	pauses  map[string]time.Time // until when nothing may be sent, by key
	sweepAt int                  // how many there may be before the next sweep
}

const (
	defaultPause = time.Hour
	fewPauses    = 1024
)

// A LimitedError says that a call was not sent, because it would have had to wait beyond its
// context's deadline, or for ever. Its status is ResourceExhausted.
type LimitedError struct {
	// Key is the key whose calls share the limit.
	Key string
	// RetryAfter is how long the wait would have been, or [stint.Never].
	RetryAfter stint.Wait
	// Server reports whether the server asked for the wait; else Limiter did.
	Server bool
	// Err is a [*stint.WaitError] if Limiter asked for the wait, else
	// context.DeadlineExceeded.
	Err error
}

// Error names the limits that hold the call, its key and the wait.
func (e *LimitedError) Error() string {
	return guard.NotSent("grpclimit", "calls", e.Key, e.RetryAfter, e.Server)
}

// Unwrap returns Err, which matches context.DeadlineExceeded unless the cost can
// never pass.
func (e *LimitedError) Unwrap() error { return e.Err }

// GRPCStatus returns the error as a status, for [status.FromError].
func (e *LimitedError) GRPCStatus() *status.Status {
	st := status.New(codes.ResourceExhausted, e.Error())
	if wait, ok := e.RetryAfter.Duration(); ok {
		if full, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
			st = full
		}
	}
	return st
}

// Unary returns the option for calls that are not streams.
func (c *Client) Unary() grpc.DialOption { return grpc.WithChainUnaryInterceptor(c.UnaryInterceptor) }

// Stream returns the option for streams.
func (c *Client) Stream() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(c.StreamInterceptor)
}

// UnaryInterceptor is a [grpc.UnaryClientInterceptor].
func (c *Client) UnaryInterceptor(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	key := c.key(ctx, conn.Target(), method)
	for try := 0; ; try++ {
		if err := c.waitToSend(ctx, key, Call{Method: method, Message: req}); err != nil {
			return err
		}
		err := invoke(ctx, method, req, reply, conn, opts...)
		pause := c.learn(key, err)
		if pause == 0 || try >= c.MaxRetries || status.Code(err) != codes.ResourceExhausted {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
			return err
		}
	}
}

// StreamInterceptor is a [grpc.StreamClientInterceptor].
func (c *Client) StreamInterceptor(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	key := c.key(ctx, conn.Target(), method)
	if err := c.waitToSend(ctx, key, Call{Method: method, Stream: true}); err != nil {
		return nil, err
	}
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		c.learn(key, err)
		return nil, err
	}
	return &pacedStream{stream, c, key, method}, nil
}

// A pacedStream waits before it sends messages, and learns from the status that ends it.
type pacedStream struct {
	grpc.ClientStream
	client      *Client
	key, method string
}

// SendMsg waits until the message may be sent, and sends it.
func (s *pacedStream) SendMsg(m any) error {
	if s.client.Messages && s.client.Limiter != nil {
		if err := s.client.wait(s.Context(), s.key, Call{Method: s.method, Stream: true, Message: m}); err != nil {
			return err
		}
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg takes note of the status that ends the stream.
func (s *pacedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		s.client.learn(s.key, err)
	}
	return err
}

func (c *Client) key(ctx context.Context, target, method string) string {
	if c.Key != nil {
		return c.Key(ctx, target, method)
	}
	return target + method
}

// waitToSend returns when a call may be sent. It waits for the server's pause first and for
// Limiter after that, so that the end of a pause brings no burst; and again if the server has
// asked for a pause meanwhile.
func (c *Client) waitToSend(ctx context.Context, key string, call Call) error {
	for {
		if err := c.pause(ctx, key); err != nil {
			return err
		}
		if c.Limiter == nil {
			return nil
		}
		if err := c.wait(ctx, key, call); err != nil {
			return err
		}
		if c.paused(key, time.Now()) <= 0 {
			return nil
		}
		if _, err := c.Limiter.Refund(ctx, key, c.cost(ctx, call)); err != nil {
			return err
		}
	}
}

func (c *Client) wait(ctx context.Context, key string, call Call) error {
	err := c.Limiter.Wait(ctx, key, c.cost(ctx, call))
	var early *stint.WaitError
	if errors.As(err, &early) {
		wait := early.Decision.RetryAfter
		if wait != stint.Never {
			wait = max(wait, stint.Wait(early.Decision.Delay))
		}
		return &LimitedError{Key: key, RetryAfter: wait, Err: err}
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

func (c *Client) cost(ctx context.Context, call Call) int64 {
	if c.Cost == nil {
		return 1
	}
	return c.Cost(ctx, call)
}

func (c *Client) pause(ctx context.Context, key string) error {
	for {
		left := c.paused(key, time.Now())
		if left <= 0 {
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < left {
			return &LimitedError{Key: key, RetryAfter: stint.Wait(left), Server: true, Err: context.DeadlineExceeded}
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (c *Client) paused(key string, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.pauses[key]
	if !ok {
		return 0
	}
	if left := until.Sub(now); left > 0 {
		return left
	}
	delete(c.pauses, key)
	return 0
}

// learn takes note of the pause that a status asks for, and returns it.
func (c *Client) learn(key string, err error) time.Duration {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.ResourceExhausted && st.Code() != codes.Unavailable {
		return 0
	}
	pause := time.Duration(0)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().CheckValid() == nil {
			pause = max(pause, info.GetRetryDelay().AsDuration())
		}
	}
	longest := c.MaxPause
	if longest <= 0 {
		longest = defaultPause
	}
	if pause = min(pause, longest); pause <= 0 {
		return 0
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pauses) >= c.sweepAt {
		c.sweep(now)
	}
	if until := now.Add(pause); until.After(c.pauses[key]) {
		c.pauses[key] = until
	}
	return pause
}

// sweep forgets pauses that are over. It is called each time their number has
// doubled. c.mu is held.
func (c *Client) sweep(now time.Time) {
	if c.pauses == nil {
		c.pauses = make(map[string]time.Time)
	}
	for key, until := range c.pauses {
		if !now.Before(until) {
			delete(c.pauses, key)
		}
	}
	c.sweepAt = max(2*len(c.pauses), fewPauses)
}
