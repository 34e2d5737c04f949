package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// What a call settles is reserved for settleLasts, longer than calls last: if this process
// is killed, what is open then stays as it is charged. The trailer of a call waits for its
// settlement, at most settleWithin.
const (
	settleLasts  = 24 * time.Hour
	settleWithin = time.Second
)

// errPanicked is what a handler that panics has answered.
var errPanicked = status.Error(codes.Internal, "the handler has panicked")

// An opened call passes, and has something to do when it ends.
type opened struct {
	server *Server
	ctx    context.Context // of the call
	method string
	end    func() // gives back what it holds in flight; may be nil
	settle func(ctx context.Context, e ended) error
	fields *fields // nil if no rule looks for any
}

// An ended call is what its handler has answered.
type ended struct {
	code            codes.Code
	whole           bool // neither its client has gone, nor has the handler panicked
	header, trailer metadata.MD
}

// ended settles what the call was charged by what its handler returns, and then gives back
// what it holds in flight.
func (o *opened) ended(failure error) {
	if o.end != nil {
		defer o.end()
	}
	if o.settle == nil {
		return
	}
	s, ok := status.FromError(failure)
	if !ok {
		s = status.FromContextError(failure)
	}
	e := ended{code: s.Code(), whole: failure != errPanicked && o.ctx.Err() == nil} //nolint:errorlint // it is this one
	e.header, e.trailer = o.fields.said()
	ctx, stop := context.WithTimeout(context.WithoutCancel(o.ctx), settleWithin)
	defer stop()
	if err := o.settle(ctx, e); err != nil {
		o.server.o.reportError(o.ctx, o.method, fmt.Errorf("grpclimit: the call was not settled, and stands as charged: %w", err))
	}
}

// settleReserved settles the charge of a limiter.
func (o *Options) settleReserved(r *stint.Reservation, cost int64) func(context.Context, ended) error {
	return func(ctx context.Context, e ended) error {
		actual := o.Settle(e.code, metadata.Join(e.header, e.trailer), cost)
		if actual < 0 {
			return nil
		}
		if _, err := r.Settle(ctx, actual); !errors.Is(err, stint.ErrReservation) { // else its key was reset
			return err
		}
		return nil
	}
}

// settleRules settles the charges of rules.
func (o *Options) settleRules(pending *policy.Pending, cost int64) func(context.Context, ended) error {
	return func(ctx context.Context, e ended) error {
		if o.Settle != nil && cost > 0 && o.Settle(e.code, metadata.Join(e.header, e.trailer), cost) == 0 {
			return pending.Cancel(ctx)
		}
		header, trailer := ofHTTP(e.header), ofHTTP(e.trailer)
		header["Content-Type"] = []string{"application/grpc"}
		trailer["Grpc-Status"] = []string{strconv.Itoa(int(e.code))}
		pending.Unseen() // what rules that were reloaded may want
		err := pending.Header(ctx, 200, header)
		pending.Trailer(trailer)
		return errors.Join(err, pending.End(ctx, e.whole))
	}
}

// ofHTTP returns metadata under the names of package net/http.
func ofHTTP(md metadata.MD) map[string][]string {
	all := make(map[string][]string, len(md)+1)
	for name, values := range md {
		all[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	return all
}

// fields are those that a handler sends. It is the transport of a call, for which it stands.
type fields struct {
	grpc.ServerTransportStream // nil where the call has none

	mu              sync.Mutex
	header, trailer metadata.MD
}

// said returns the fields, of nil none.
func (f *fields) said() (header, trailer metadata.MD) {
	if f == nil {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.header.Copy(), f.trailer.Copy()
}

func (f *fields) note(to *metadata.MD, md metadata.MD) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *to == nil {
		*to = make(metadata.MD)
	}
	for name, values := range md {
		to.Append(name, values...)
	}
}

// noting returns the context of a call whose fields are noted.
func (f *fields) noting(ctx context.Context) context.Context {
	f.ServerTransportStream = grpc.ServerTransportStreamFromContext(ctx)
	return grpc.NewContextWithServerTransportStream(ctx, f)
}

// SetHeader implements [grpc.ServerTransportStream].
func (f *fields) SetHeader(md metadata.MD) error {
	return f.pass(&f.header, md, grpc.ServerTransportStream.SetHeader)
}

// SendHeader implements [grpc.ServerTransportStream].
func (f *fields) SendHeader(md metadata.MD) error {
	return f.pass(&f.header, md, grpc.ServerTransportStream.SendHeader)
}

// SetTrailer implements [grpc.ServerTransportStream].
func (f *fields) SetTrailer(md metadata.MD) error {
	return f.pass(&f.trailer, md, grpc.ServerTransportStream.SetTrailer)
}

func (f *fields) pass(to *metadata.MD, md metadata.MD, on func(grpc.ServerTransportStream, metadata.MD) error) error {
	f.note(to, md)
	if f.ServerTransportStream == nil {
		return nil
	}
	return on(f.ServerTransportStream, md)
}

// A notedStream is a stream whose fields are noted.
type notedStream struct {
	grpc.ServerStream
	ctx    context.Context
	fields *fields
}

// Context implements [grpc.ServerStream].
func (s *notedStream) Context() context.Context { return s.ctx }

// SetHeader implements [grpc.ServerStream].
func (s *notedStream) SetHeader(md metadata.MD) error {
	s.fields.note(&s.fields.header, md)
	return s.ServerStream.SetHeader(md)
}

// SendHeader implements [grpc.ServerStream].
func (s *notedStream) SendHeader(md metadata.MD) error {
	s.fields.note(&s.fields.header, md)
	return s.ServerStream.SendHeader(md)
}

// SetTrailer implements [grpc.ServerStream].
func (s *notedStream) SetTrailer(md metadata.MD) {
	s.fields.note(&s.fields.trailer, md)
	s.ServerStream.SetTrailer(md)
}
