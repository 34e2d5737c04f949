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
	// Client may ask.
	Client
	// Operator may give back as well.
	Operator
)

// healthService may be called without a token: probes have none.
const healthService = "/grpc.health.v1.Health/"

type operatorKey struct{}

// isOperator reports whether the caller of a call that was admitted is one.
func isOperator(ctx context.Context) bool {
	operator, _ := ctx.Value(operatorKey{}).(bool)
	return operator
}

// endWith ends streams with a context: those of clients that watch the server's health
// have no end of their own.
func endWith(stopping context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		return next(srv, &endingStream{stream, ctx})
	}
}

// An endingStream is a stream with a context of ours.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context.
func (s *endingStream) Context() context.Context { return s.ctx }
