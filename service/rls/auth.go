package rls

import (
	"context"

	"google.golang.org/grpc"
)

// A Role is what a caller may do.
type Role uint8

const (
	// Nobody may only ask for the server's health.
	Nobody Role = iota
	// Client may ask for decisions.
	Client
	// Operator may also refund.
	Operator
)

// healthService may be called without a token, since probes have none.
const healthService = "/grpc.health.v1.Health/"

type operatorKey struct{}

// isOperator reports whether the caller of an admitted call is an operator.
func isOperator(ctx context.Context) bool {
	operator, _ := ctx.Value(operatorKey{}).(bool)
	return operator
}

// endWith ends streams when a context ends: streams of clients that watch the server's health do
// not end by themselves.
func endWith(stopping context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		return next(srv, &endingStream{stream, ctx})
	}
}

// An endingStream is a stream with another context.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context.
func (s *endingStream) Context() context.Context { return s.ctx }
