// Package connectlimit holds the calls of a Connect server to limits, whether they come by
// the Connect protocol, gRPC or gRPC-Web:
//
//	guard, err := grpclimit.NewServer(limiter, grpclimit.PeerKey(), grpclimit.Options{})
//	…
//	path, handler := pingv1connect.NewPingServiceHandler(server,
//		connect.WithInterceptors(connectlimit.Interceptor(guard)))
//
// It puts a [grpclimit.Server] behind an interceptor of Connect, so that keys, options, rules
// and answers are those of gRPC: a denied call ends with resource_exhausted and has
// google.rpc.RetryInfo, QuotaFailure and ErrorInfo as details, and the headers have the
// fields ratelimit, ratelimit-policy and retry-after. Streams are held to limits when they
// open and, with grpclimit.Options.Messages, at each message.
//
// Price: that of the guard, and some allocations for a call's metadata. The interceptor may
// be used from many goroutines at once.
package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stint-dev/stint/grpclimit"
)

// Interceptor returns an interceptor for handlers. In a client it has no effect.
func Interceptor(guard *grpclimit.Server) connect.Interceptor { return &interceptor{guard} }

type interceptor struct{ guard *grpclimit.Server }

// WrapUnary implements [connect.Interceptor].
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if r.Spec().IsClient {
			return next(ctx, r)
		}
		known := incoming(ctx, r.Header(), r.Peer())
		if call, ok := connect.CallInfoForHandlerContext(ctx); ok { // not in answer.Header(): a handler may return one answer, or error, for many calls
			known = grpc.NewContextWithServerTransportStream(known, transport{r.Spec().Procedure, call.ResponseHeader()})
		}
		var answer connect.AnyResponse
		var failure error
		passed := false
		_, err := i.guard.UnaryInterceptor(known, r.Any(), &grpc.UnaryServerInfo{FullMethod: r.Spec().Procedure},
			func(guarded context.Context, _ any) (any, error) {
				passed = true
				if answer, failure = next(ctx, r); failure == nil {
					tell(guarded, answer.Header(), answer.Trailer())
				}
				if call, ok := connect.CallInfoForHandlerContext(ctx); ok {
					tell(guarded, call.ResponseHeader(), call.ResponseTrailer())
				}
				return nil, ended(guarded, failure)
			})
		if !passed {
			return nil, refusal(err)
		}
		return answer, failure
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor].
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		known := incoming(ctx, conn.RequestHeader(), conn.Peer())
		var failure error
		passed := false
		err := i.guard.StreamInterceptor(nil, &stream{conn: conn, ctx: known}, &grpc.StreamServerInfo{FullMethod: conn.Spec().Procedure},
			func(_ any, s grpc.ServerStream) error {
				passed = true
				failure = next(ctx, &guarded{conn, s})
				tell(s.Context(), conn.ResponseHeader(), conn.ResponseTrailer())
				return ended(s.Context(), failure)
			})
		if !passed {
			return refusal(err)
		}
		return failure
	}
}

// tell notes the fields of an answer for the guard, if it looks at them.
func tell(ctx context.Context, all ...http.Header) {
	for _, fields := range all {
		_ = grpc.SetTrailer(ctx, metadata.MD(fields)) // an error means that the guard does not look at them
	}
}

func ended(ctx context.Context, failure error) error {
	e, ok := errors.AsType[*connect.Error](failure)
	if !ok {
		return failure
	}
	known := *e // Meta makes the map of an error without one, and a handler may return one error for many calls
	tell(ctx, known.Meta())
	return status.Error(codes.Code(e.Code()), e.Message())
}

// incoming returns the context that grpc would give the call: with its peer and its metadata,
// where values of binary names are decoded.
func incoming(ctx context.Context, header http.Header, from connect.Peer) context.Context {
	md := make(metadata.MD, len(header))
	for name, values := range header {
		switch name = strings.ToLower(name); {
		case name == "host":
			md[":authority"] = values
		case strings.HasSuffix(name, "-bin"):
			md[name] = decoded(values)
		default:
			md[name] = values
		}
	}
	return peer.NewContext(metadata.NewIncomingContext(ctx, md), &peer.Peer{Addr: address(from.Addr)})
}

// decoded returns the decoded values of a binary name, of which one line may have several. A
// value that is not base64 stays as it is.
func decoded(lines []string) (values []string) {
	for _, line := range lines {
		for text := range strings.SplitSeq(line, ",") {
			text = strings.TrimSpace(text)
			if value, err := connect.DecodeBinaryHeader(text); err == nil {
				text = string(value)
			}
			values = append(values, text)
		}
	}
	return values
}

// An address is a client's address, as text.
type address string

// Network implements [net.Addr].
func (address) Network() string { return "tcp" }

// String implements [net.Addr].
func (a address) String() string { return string(a) }

func refusal(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := connect.NewError(connect.Code(s.Code()), errors.New(s.Message()))
	for _, d := range s.Details() {
		if message, ok := d.(proto.Message); ok {
			if detail, err := connect.NewErrorDetail(message); err == nil {
				e.AddDetail(detail)
			}
		}
	}
	return e
}

func set(to http.Header, md metadata.MD) {
	for name, values := range md {
		to[http.CanonicalHeaderKey(name)] = values
	}
}

// A transport puts the metadata of a unary call into the headers of its answer.
type transport struct {
	method string
	header http.Header
}

var _ grpc.ServerTransportStream = transport{}

// Method implements [grpc.ServerTransportStream].
func (t transport) Method() string { return t.method }

// SetHeader implements [grpc.ServerTransportStream].
func (t transport) SetHeader(md metadata.MD) error { set(t.header, md); return nil }

// SendHeader implements [grpc.ServerTransportStream].
func (t transport) SendHeader(md metadata.MD) error { return t.SetHeader(md) }

// SetTrailer implements [grpc.ServerTransportStream]. What the guard says of a settlement stands in
// the header, which has not been sent yet; what tell notes is in the answer.
func (t transport) SetTrailer(md metadata.MD) error {
	if said := md["ratelimit"]; said != nil {
		t.header["Ratelimit"] = said
	}
	return nil
}

// A stream makes a stream of Connect one of grpc, for the guard.
type stream struct {
	grpc.ServerStream // nil: the guard calls only the methods below

	conn connect.StreamingHandlerConn
	ctx  context.Context
}

// Context implements [grpc.ServerStream].
func (s *stream) Context() context.Context { return s.ctx }

// SetHeader implements [grpc.ServerStream].
func (s *stream) SetHeader(md metadata.MD) error { set(s.conn.ResponseHeader(), md); return nil }

// SetTrailer implements [grpc.ServerStream].
func (s *stream) SetTrailer(md metadata.MD) { set(s.conn.ResponseTrailer(), md) }

// RecvMsg implements [grpc.ServerStream].
func (s *stream) RecvMsg(m any) error { return s.conn.Receive(m) }

// guarded is a stream whose messages pass the guard.
type guarded struct {
	connect.StreamingHandlerConn

	through grpc.ServerStream
}

// Receive implements [connect.StreamingHandlerConn].
func (g *guarded) Receive(m any) error {
	err := g.through.RecvMsg(m)
	if _, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		return refusal(err)
	}
	return err
}
