package rls

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/server"
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

// A gate is what calls come through.
type gate struct {
	// role says what the holder of a token may do, "" where none was shown;
	// nil if every caller may ask.
	role func(token string) Role
	// stopping ends the streams of clients that watch the server's health, which
	// have no end of their own.
	stopping context.Context
	observer *observe.Observer // counts wrong tokens
}

// authorize returns the context of a call with the caller's role, or why it is
// refused.
func (g gate) authorize(ctx context.Context, method string) (context.Context, error) {
	if g.role == nil || strings.HasPrefix(method, healthService) {
		return ctx, nil
	}
	shown := metadata.ValueFromIncomingContext(ctx, "authorization")
	switch g.role(server.BearerOf(shown)) {
	case Operator:
		return context.WithValue(ctx, operatorKey{}, true), nil
	case Client:
		return ctx, nil
	}
	if from, ok := peer.FromContext(ctx); ok && shown != nil {
		g.observer.WrongToken(observe.GRPC, from.Addr.String())
	}
	return nil, status.Error(codes.Unauthenticated, "want a token that is known here, as metadata: authorization: Bearer TOKEN")
}

func (g gate) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := g.authorize(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (g gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := g.authorize(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.stopping, cancel)()
	return next(srv, &endingStream{stream, ctx})
}

// An endingStream is a stream with a context of ours.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context.
func (s *endingStream) Context() context.Context { return s.ctx }
