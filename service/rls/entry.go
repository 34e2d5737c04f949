package rls

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/server"
)

// An entry is what every call passes through.
type entry struct {
	*ServeOptions
	observer *observe.Observer // counts wrong tokens
}

// enter checks the token of a call, counts the call, and bounds its time, beginning with its
// headers. Interceptors would see a call only once its message has arrived, which a client may send
// byte by byte. Watches of health may be long. Envoy sends a deadline of its own.
func (o *entry) enter(ctx context.Context, call *tap.Info) (context.Context, error) {
	watch, from := call.FullMethodName == healthpb.Health_Watch_FullMethodName, peerOf(ctx)
	ctx, err := o.authorize(ctx, call, from.String())
	if err != nil {
		return ctx, err
	}
	leave, why := o.room(call, from, watch)
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

// room counts a call and its metadata until leave is called, or says why it is refused.
func (o *entry) room(call *tap.Info, from net.Addr, watch bool) (leave func(), why string) {
	left, why := o.Enter(from.String(), watch)
	conn, size := connOf(from), sizeOf(call.Header)
	switch {
	case why != "" || conn == nil:
		return left, why
	case !conn.open(size):
		left()
		return nil, errRoom.Error()
	}
	return func() {
		conn.open(-size)
		left()
	}, ""
}

// fieldRoom is how many bytes a field of metadata takes beside its text.
const fieldRoom = 96

// sizeOf returns about how many bytes metadata takes. On the wire, a field may be one byte.
func sizeOf(header metadata.MD) (n int64) {
	for name, values := range header {
		for _, v := range values {
			n += int64(fieldRoom + len(name) + len(v))
		}
	}
	return n
}

// authorize returns the context of a call with the caller's role, or why the call is refused.
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
