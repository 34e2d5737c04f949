package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/guard"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
)

// A Server holds the calls of a gRPC server to limits. Make one with
// [NewServer] or [NewServerPolicy].
type Server struct {
	o      Options
	decide func(ctx context.Context, c Call, message bool) (*answer, error)
}

// NewServer returns a guard that holds each key to the limits of l. The error
// says what is missing or does not go together.
func NewServer(l *stint.Limiter, key Key, o Options) (*Server, error) {
	switch {
	case l == nil:
		return nil, errNoLimiter
	case key == nil:
		return nil, errors.New("grpclimit: no key: say whom calls are counted for, such as PeerKey()")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	most := o.MaxWait
	if o.Shadow {
		most = -1
	}
	if o.Settle != nil {
		if guard.New(l, most).Waits() {
			return nil, errors.New("grpclimit: Settle does not go with waiting: set MaxWait to -1, or to 0 with a limit that is no leaky_queue")
		}
		most = -1 // no call waits, even if the limits become leaky_queues
	}
	make := func(l *stint.Limiter) (*guard.Guard, error) {
		g := guard.New(l, most)
		if g.InFlight() && o.Messages {
			return nil, errors.New("a limit in flight does not go with Messages: a message has no end of its own")
		}
		return g, g.Check(o.Settle != nil)
	}
	own, err := make(l)
	if err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	by := &limited{own: own, key: key, o: &o}
	if o.Limits != nil {
		by.byRequest = guard.NewByRequest(own, l, make)
	}
	return &Server{o: o, decide: by.decide}, nil
}

// NewServerPolicy returns a guard that holds calls to the rules of a policy. current returns
// the policy to use, such as the Load method of an atomic.Pointer; it must not return nil. A
// call has the attributes of the HTTP request that carries it: method POST, path
// /package.Service/Method, host its authority, header.NAME its metadata, ip the connection's
// address. It also has grpc.service, grpc.method, grpc.message, and those of Options.Attribute.
// Options.Missing has no meaning: rules have on_missing.
//
// Rules that go by the response are settled when the handler has returned, before the trailer
// is sent: by the fields of the header and the trailer, and by the status that
// google.rpc.Code gives in HTTP to the call's code. The exceptions are Canceled and
// DeadlineExceeded: clients can bring them about before a call fails, so every rule counts them.
//
// NewServerPolicy refuses rules that go by the body of a response, and under Options.Messages
// rules that hold messages to a limit in flight or settle them by the response. If such rules
// come by a reload, rules by the body charge each call what they reserve, a limit in flight
// refuses each message, and rules by the response charge each message for good.
func NewServerPolicy(current func() *policy.Policy, o Options) (*Server, error) {
	if current == nil || current() == nil {
		return nil, errors.New("grpclimit: no policy: policy.New makes one")
	}
	if o.Limits != nil {
		return nil, errors.New("grpclimit: Limits has no meaning under a policy: its rules have tiers")
	}
	if o.Missing != MissingShared {
		return nil, errors.New("grpclimit: Missing has no meaning under a policy: its rules have on_missing")
	}
	by := &policyGuard{current: current, o: &o, by: request.Interceptor}
	if o.Attribute != nil {
		by.by = request.Service
	}
	if refused := current().Rules().File().Refused(by.by); len(refused) > 0 {
		return nil, fmt.Errorf("grpclimit: %w", refused)
	}
	file := current().Rules().File()
	if names := append(file.InFlight("grpc.message"), file.ByResponse("grpc.message")...); o.Messages && len(names) > 0 {
		return nil, fmt.Errorf("grpclimit: Messages does not go with rule %q, which has a limit in flight or goes by the response: a message has no end of its own; unless: {grpc.message: true} leaves messages out", names[0])
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Server{o: o, decide: by.decide}, nil
}

// Unary returns the option that guards calls which are not streams.
func (s *Server) Unary() grpc.ServerOption { return grpc.ChainUnaryInterceptor(s.UnaryInterceptor) }

// Stream returns the option that guards streams.
func (s *Server) Stream() grpc.ServerOption {
	return grpc.ChainStreamInterceptor(s.StreamInterceptor)
}

// UnaryInterceptor is a [grpc.UnaryServerInterceptor].
func (s *Server) UnaryInterceptor(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	if s.o.Skip(ctx, info.FullMethod) {
		return next(ctx, req)
	}
	set := func(m map[string][]string) { _ = grpc.SetHeader(ctx, m) } // an error means that the call has ended
	call, err := s.check(ctx, Call{Method: info.FullMethod, Message: req}, false, set)
	if err != nil {
		return nil, err
	}
	if call == nil {
		return next(ctx, req)
	}
	outer := ctx
	call.again = func(m map[string][]string) { _ = grpc.SetTrailer(outer, m) }
	if call.fields != nil {
		ctx = call.fields.noting(ctx)
	}
	err = errPanicked
	defer func() { call.ended(err) }()
	answer, err = next(ctx, req)
	return answer, err
}

// StreamInterceptor is a [grpc.StreamServerInterceptor].
func (s *Server) StreamInterceptor(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	if s.o.Skip(ctx, info.FullMethod) {
		return next(srv, stream)
	}
	set := func(m map[string][]string) { _ = stream.SetHeader(m) } // an error means that the stream has ended
	call, err := s.check(ctx, Call{Method: info.FullMethod, Stream: true}, false, set)
	if err != nil {
		return err
	}
	if call != nil {
		outer := stream
		call.again = func(m map[string][]string) { outer.SetTrailer(m) }
		if call.fields != nil {
			stream = &notedStream{stream, call.fields.noting(ctx), call.fields}
		}
		err = errPanicked
		defer func() { call.ended(err) }()
	}
	if s.o.Messages {
		stream = &guardedStream{stream, s, info.FullMethod}
	}
	err = next(srv, stream)
	return err
}

type guardedStream struct {
	grpc.ServerStream
	server *Server
	method string
}

// RecvMsg returns a message that may pass. While a message waits, the flow control of the
// stream holds the client back.
func (g *guardedStream) RecvMsg(m any) error {
	if err := g.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	_, err := g.server.check(g.Context(), Call{Method: g.method, Stream: true, Message: m}, true, func(fields map[string][]string) {
		g.SetTrailer(fields) // the headers may have been sent
	})
	return err
}

// check decides about a call or a message, and returns why it may not go on. If call is not
// nil, it goes on, and [opened.ended] must be called at its end.
func (s *Server) check(ctx context.Context, c Call, message bool, set func(map[string][]string)) (call *opened, refused error) {
	a, err := s.decide(unhurried{ctx}, c, message)
	switch {
	case err != nil:
		return nil, s.failed(ctx, c.Method, err)
	case a == nil: // not counted
		return nil, nil
	}
	defer func() {
		if call == nil && a.end != nil { // a hook has panicked
			a.end()
		}
	}()
	if a.storeError != nil {
		s.o.reportError(ctx, c.Method, a.storeError)
	}
	if s.o.OnDecision != nil {
		s.o.OnDecision(ctx, c.Method, Outcome{
			Decision: a.decision, Key: a.key, Violated: a.violated, Rules: a.rules, Shadow: s.o.Shadow, Message: message, Waited: a.waited,
		})
	}
	if s.o.Shadow {
		a.release()
		return s.open(ctx, c.Method, a), nil
	}
	if !s.o.NoFields && (!message || !a.decision.Allowed) {
		set(a.fields())
	}
	if !a.decision.Allowed {
		refused = a.refusal()
	}
	a.release()
	return s.open(ctx, c.Method, a), refused
}

// open returns a call for which something is to be done when it ends; nil if there is nothing
// to do.
func (s *Server) open(ctx context.Context, method string, a *answer) *opened {
	if a.end == nil && a.settle == nil {
		return nil
	}
	call := &opened{server: s, ctx: ctx, method: method, end: a.end, settle: a.settle}
	if a.looks {
		call.fields = new(fields)
	}
	return call
}

// An unhurried context ends with another one, but has no deadline. The deadline is the
// client's: a store that got only a part of it would seem to fail whenever a client is in a
// hurry, and FailOpen or on_store_failure would decide. So the store takes its own time; a
// call whose deadline is over by then gets an error and does not pass.
type unhurried struct{ context.Context }

// Deadline implements [context.Context].
func (unhurried) Deadline() (time.Time, bool) { return time.Time{}, false }

// failed reports an error, and returns the error that the call ends with; nil if it goes on.
func (s *Server) failed(ctx context.Context, method string, err error) error {
	if ctx.Err() == nil {
		s.o.reportError(ctx, method, err)
	}
	var lacks *policy.NotGivenError
	switch {
	case s.o.Shadow:
		return nil
	case errors.As(err, &lacks):
		return refuseServer
	case errors.Is(err, policy.ErrRequest) || errors.Is(err, stint.ErrCost):
		return refuseRequest
	case s.o.FailOpen && guard.StoreFailed(ctx, err):
		return nil
	}
	return refuseError
}
