package rls

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// enter counts calls, and bounds how long they take, from their headers on:
// interceptors see a call only once its message is there, which a client may send byte
// by byte. Watches of health are long. Envoy sends a deadline of its own.
func (o *ServeOptions) enter(ctx context.Context, call *tap.Info) (context.Context, error) {
	watch, from := call.FullMethodName == healthpb.Health_Watch_FullMethodName, ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	leave, why := o.Enter(from, watch)
	if why != "" {
		return ctx, status.Error(codes.Unavailable, why)
	}
	if by, ok := ctx.Deadline(); watch || ok && time.Until(by) <= o.Read {
		context.AfterFunc(ctx, leave)
		return ctx, nil
	}
	bound, release := context.WithTimeout(ctx, o.Read)
	context.AfterFunc(ctx, func() {
		release()
		leave()
	})
	return bound, nil
}
