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
	"github.com/stint-dev/stint/internal/guard"
	"github.com/stint-dev/stint/policy"
)

// settleLasts is how long a call may last until its charge is settled: longer than calls
// last. If this process is killed, open charges stand. settleWithin is how long a settlement
// may take, since the trailer of the call waits for it.
const (
	settleLasts  = 24 * time.Hour
	settleWithin = time.Second
)

// errPanicked is the error with which a call ends whose handler panics.
var errPanicked = status.Error(codes.Internal, "the handler has panicked")

// An opened call is one that passed and that must be settled, or give back its places, when
// it ends.
type opened struct {
	server *Server
	ctx    context.Context // of the call
	method string
	end    func() // gives back its places in flight; may be nil
	settle settlement
	again  func(map[string][]string) // sets the trailer
	fields *fields                   // nil if nothing looks at metadata of the response
}

// A settlement settles the charge of a call when it has ended. It returns the metadata that says
// what remains then, or nil if that is what it was, or not known.
type settlement func(ctx context.Context, e ended) (map[string][]string, error)

// An ended is what the handler of a call has answered.
type ended struct {
	code            codes.Code
	whole           bool // the client has not gone, and the handler has not panicked
	gone            bool // the client has gone, and the handler failed for it, as far as its code says
	header, trailer metadata.MD
}

// ended settles the call's charge by what its handler returned, and then gives back its
// places in flight.
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
	e := ended{code: s.Code(), whole: failure != errPanicked && o.ctx.Err() == nil} //nolint:errorlint // this very error, which the interceptors set
	switch e.code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unknown, codes.Internal, codes.Unavailable, codes.Aborted:
		e.gone = o.ctx.Err() != nil
	}
	e.header, e.trailer = o.fields.said()
	ctx, stop := context.WithTimeout(context.WithoutCancel(o.ctx), settleWithin)
	defer stop()
	remains, err := o.settle(ctx, e)
	if remains != nil && !o.server.o.Shadow && !o.server.o.NoFields {
		o.again(map[string][]string{fieldRateLimit: remains[fieldRateLimit]})
	}
	if err != nil {
		o.server.o.reportError(o.ctx, o.method, fmt.Errorf("grpclimit: the call was not settled, and stands as charged: %w", err))
	}
}

// settleReserved returns what settles the charge of a limiter.
func (o *Options) settleReserved(r *stint.Reservation, by *guard.Guard, cost int64) settlement {
	return func(ctx context.Context, e ended) (map[string][]string, error) {
		actual := int64(-1)
		if !e.gone {
			actual = o.Settle(e.code, metadata.Join(e.header, e.trailer), cost)
		}
		if actual < 0 {
			return nil, nil
		}
		a := new(answer)
		var err error
		if a.decision, err = r.Settle(ctx, actual); errors.Is(err, stint.ErrReservation) { // a reset of the key has ended the reservation
			return nil, nil
		}
		if a.nameLimits(by); err != nil || actual == cost || a.tightest < 0 {
			return nil, err
		}
		return a.fields(), nil
	}
}

// settleRules returns what settles the charges of rules.
func (b *policyGuard) settleRules(pending *policy.Pending, cost int64) settlement {
	return func(ctx context.Context, e ended) (map[string][]string, error) {
		if err := b.o.settlePending(ctx, pending, cost, e); err != nil {
			return nil, err
		}
		r, a := new(policy.Result), &answer{tightest: -1}
		if !pending.Remains(ctx, r) {
			return nil, nil
		}
		a.decision = r.Decision
		if b.tell(a, r); a.tightest < 0 {
			return nil, nil
		}
		return a.fields(), nil
	}
}

func (o *Options) settlePending(ctx context.Context, pending *policy.Pending, cost int64, e ended) error {
	if o.Settle != nil && cost > 0 && !e.gone && o.Settle(e.code, metadata.Join(e.header, e.trailer), cost) == 0 {
		return pending.Cancel(ctx)
	}
	header, trailer := ofHTTP(e.header), ofHTTP(e.trailer)
	header["Content-Type"] = []string{"application/grpc"}
	if !e.gone {
		trailer["Grpc-Status"] = []string{strconv.Itoa(int(e.code))}
	}
	pending.Unseen() // so that rules by the body, which a reload may bring, charge what they reserve
	err := pending.Header(ctx, 200, header)
	pending.Trailer(trailer)
	return errors.Join(err, pending.End(ctx, e.whole))
}

func ofHTTP(md metadata.MD) map[string][]string {
	all := make(map[string][]string, len(md)+1)
	for name, values := range md {
		all[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	return all
}

// fields notes the metadata that a handler sends. It stands in for the transport of the call,
// and passes all on to that.
type fields struct {
	grpc.ServerTransportStream // nil if the call has none

	mu              sync.Mutex
	header, trailer metadata.MD
}

// said returns the metadata noted so far; none if f is nil.
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

// noting returns a context in which f notes the metadata of the call.
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
