package rls

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/server"
)

// An entry is what calls come through.
type entry struct {
	*ServeOptions
	observer *observe.Observer // counts wrong tokens
}

// enter asks calls for their token, counts them, and bounds how long they take, from
// their headers on: interceptors see a call only once its message is there, which a client
// may send byte by byte. Watches of health are long. Envoy sends a deadline of its own.
func (o *entry) enter(ctx context.Context, call *tap.Info) (context.Context, error) {
	watch, from := call.FullMethodName == healthpb.Health_Watch_FullMethodName, ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	ctx, err := o.authorize(ctx, call, from)
	if err != nil {
		return ctx, err
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

// authorize returns the context of a call with the caller's role, or why it is refused.
func (o *entry) authorize(ctx context.Context, call *tap.Info, from string) (context.Context, error) {
	if o.Admit == nil || strings.HasPrefix(call.FullMethodName, healthService) {
		return ctx, nil
	}
	shown := call.Header.Get("authorization")
	switch o.Admit(server.BearerOf(shown)) {
	case Operator:
		return context.WithValue(ctx, operatorKey{}, true), nil
	case Client:
		return ctx, nil
	}
	if shown != nil {
		o.observer.WrongToken(observe.GRPC, from)
	}
	return ctx, status.Error(codes.Unauthenticated, "want a token that is known here, as metadata: authorization: Bearer TOKEN")
}
