package rls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
)

// Bounds of a request. By default Envoy accepts 60 KiB of headers, and copies them to each
// descriptor that is made of them. A message holds 64 copies, so that no client can make one that
// is too long.
const (
	MaxDescriptors = 64
	MaxEntries     = 64
	MaxValue       = 8 << 10 // bytes of an entry's value that rules read
	MaxMessage     = 4 << 20 // bytes
)

// entrypoint is the value of the label "interface" for this service.
const entrypoint = "rls"

// Options are the options of a Service. Source and Observer are required.
type Options struct {
	// Source has the rules.
	Source *rules.Source
	// Observer counts each decision.
	Observer *observe.Observer
	// Traced says that the observer wants the trace of every call. The default value is false: it
	// gets the trace of denied calls.
	Traced bool
	// RoomFor returns an error if a limit that a descriptor brings may not be added to the limits
	// under a name; the descriptor is then over the limit. The default allows every limit.
	RoomFor func(name string, l stint.Limit) error
	// RefuseLimits ignores the limits that descriptors bring, so that the rules decide. The default
	// value is false: such limits replace the rules.
	RefuseLimits bool
	// ClientsRefund lets all clients refund, with is_negative_hits. The default value is false:
	// only operators may.
	ClientsRefund bool
	// Dialect is the header fields that Envoy adds to responses. Headers turns them on.
	Dialect httplimit.Dialect
	// Headers makes Envoy add the fields of Dialect, and Retry-After to denials. The default value
	// is false.
	Headers bool
}

// A Service answers ShouldRateLimit. It may be used from many goroutines at
// once.
type Service struct {
	pb.UnimplementedRateLimitServiceServer

	o         Options
	overrides overrides
	calls     sync.Pool // of *call
}

// New returns a Service.
func New(o Options) *Service {
	s := &Service{o: o, calls: sync.Pool{New: func() any { return new(call) }}}
	s.overrides.Max, s.overrides.Forgot = maxOverrides, func() { o.Observer.Forgot(entrypoint) }
	if o.RoomFor == nil {
		s.o.RoomFor = func(string, stint.Limit) error { return nil }
	}
	return s
}

// A call is one request being answered. Calls are pooled.
type call struct {
	descriptors []descriptor
	requests    []policy.Request
	result      policy.Result
}

// ShouldRateLimit implements the service.
func (s *Service) ShouldRateLimit(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return s.Decide(ctx, req, isOperator(ctx))
}

// Decide answers a request; operator says that the caller is an operator. The error is a gRPC
// status.
func (s *Service) Decide(ctx context.Context, req *pb.RateLimitRequest, operator bool) (*pb.RateLimitResponse, error) {
	c := s.calls.Get().(*call)
	defer s.release(c)
	p := s.o.Source.Policy()
	if err := s.read(p, req, operator, c); err != nil {
		s.o.Observer.Failed(entrypoint, err)
		if err.denies {
			return denial(req.GetDescriptors(), err.at), nil
		}
		return nil, err.status()
	}
	began := time.Now()
	if err := p.DecideAll(ctx, c.requests, &c.result); err != nil {
		s.o.Observer.Failed(entrypoint, err)
		for _, theirs := range []error{policy.ErrRequest, stint.ErrLayers, stint.ErrInFlight} {
			if errors.Is(err, theirs) { // after an error, Envoy lets the request pass by default
				return denial(req.GetDescriptors(), min(len(c.result.Answers), len(c.requests)-1)), nil
			}
		}
		return nil, statusOf(ctx, err)
	}
	if c.result.ShadowDenied {
		denyByQuotas(&c.result)
	}
	asked := observe.Request{Took: time.Since(began)}
	if s.o.Traced || !c.result.Decision.Allowed {
		asked.Header = traceOf(ctx)
	}
	s.o.Observer.Decided(entrypoint, &c.result, asked)
	resp := respond(&c.result)
	for i, q := range c.requests {
		if q.Limits != nil {
			tellBrought(resp.Statuses[i], req.GetDescriptors()[i].GetLimit())
		}
	}
	if s.o.Headers || replies(&c.result) {
		s.addHeaders(c, resp)
	}
	return resp, nil
}

// traceOf returns the headers of a call that name its trace.
func traceOf(ctx context.Context) http.Header {
	h := make(http.Header)
	for _, name := range []string{"traceparent", "tracestate"} {
		for _, v := range metadata.ValueFromIncomingContext(ctx, name) {
			h.Add(name, v)
		}
	}
	return h
}

// tellBrought completes the status of a descriptor whose limit is not in the store: a limit of
// nothing, or one that the store cannot hold.
func tellBrought(st *pb.RateLimitResponse_DescriptorStatus, l *ratelimit.RateLimitDescriptor_RateLimitOverride) {
	if st.CurrentLimit == nil {
		st.CurrentLimit = &pb.RateLimitResponse_RateLimit{
			Name: overrideRule, RequestsPerUnit: l.GetRequestsPerUnit(), Unit: pb.RateLimitResponse_RateLimit_Unit(l.GetUnit()), UnitMultiplier: l.GetUnitMultiplier(),
		}
	}
}

// A fault is the error of a request that cannot be used.
type fault struct {
	code   codes.Code
	reason string
	denies bool // answer with a denial of descriptor at instead of an error
	at     int
}

func (f *fault) Error() string { return f.reason }

// Is makes a fault match [policy.ErrRequest], for metrics.
func (f *fault) Is(target error) bool { return target == policy.ErrRequest }

func (f *fault) status() error { return status.Error(f.code, f.reason) }

func invalid(format string, args ...any) *fault {
	return &fault{code: codes.InvalidArgument, reason: fmt.Sprintf(format, args...)}
}

// denied is a fault that a client may have caused. It is a denial, since Envoy lets a request pass
// after an error.
func denied(at int, format string, args ...any) *fault {
	return &fault{reason: fmt.Sprintf(format, args...), denies: true, at: at}
}

// read converts the descriptors to requests of the policy.
func (s *Service) read(p *policy.Policy, req *pb.RateLimitRequest, operator bool, c *call) *fault {
	all := req.GetDescriptors()
	switch {
	case req.GetDomain() == "":
		return invalid("domain: empty")
	case len(all) == 0:
		return invalid("descriptors: none there")
	case len(all) > MaxDescriptors:
		return denied(0, "descriptors: more than %d", MaxDescriptors)
	}
	c.descriptors = slices.Grow(c.descriptors[:0], len(all))[:len(all)]
	for i, d := range all {
		if len(d.GetEntries()) > MaxEntries {
			return denied(i, "descriptors[%d].entries: more than %d", i, MaxEntries)
		}
		c.descriptors[i] = descriptor{domain: req.GetDomain(), entries: d.GetEntries()}
		q := policy.Request{Attributes: &c.descriptors[i], Cost: max(int64(req.GetHitsAddend()), 1)}
		if own := d.GetHitsAddend(); own != nil {
			if own.GetValue() > math.MaxInt64 {
				return denied(i, "descriptors[%d].hits_addend: at most %d", i, int64(math.MaxInt64))
			}
			q.Cost = int64(own.GetValue())
			q.Peek = q.Cost == 0 && !d.GetIsNegativeHits()
		}
		if q.Refund = d.GetIsNegativeHits(); q.Refund && !operator && !s.o.ClientsRefund {
			return &fault{code: codes.PermissionDenied, reason: fmt.Sprintf("descriptors[%d].is_negative_hits: giving back is for operators: show a token of theirs, or start with --rls-refunds askers", i)}
		}
		if q.Peek {
			q.Cost = 1 // asks whether one more would pass
		}
		if l := d.GetLimit(); l != nil && !s.o.RefuseLimits {
			given, err := s.override(p, l)
			switch {
			case errors.Is(err, stint.ErrFull):
				return denied(i, "descriptors[%d].%v", i, err)
			case err != nil:
				return invalid("descriptors[%d].%v", i, err)
			}
			q.Limits, q.Key = given, c.descriptors[i].key()
			if at := c.descriptors[i].own; at != nil {
				return denied(i, "descriptors[%d]: %v", i, at)
			}
		}
		c.requests = append(c.requests, q)
	}
	return nil
}

// statusOf returns the gRPC status for an error of the policy. The store's error goes to the log
// only, since it may name servers.
func statusOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	if errors.Is(err, policy.ErrNotReady) {
		return status.Error(codes.Unavailable, "there are no rules yet")
	}
	return status.Error(codes.Unavailable, "the store could not decide")
}

// replies reports whether the rule of a denial says how to answer it.
func replies(r *policy.Result) bool {
	if r.Decision.Allowed || r.Tightest < 0 {
		return false
	}
	says := r.Rules[r.Tightest].Reply()
	return says.Denied != nil || says.CORS != nil
}

// addHeaders adds the headers that Envoy adds to the response, and the body that the rule of a
// denial says. Envoy sets the status.
func (s *Service) addHeaders(c *call, resp *pb.RateLimitResponse) {
	h, origin := make(http.Header), ""
	for i := range c.descriptors {
		if v, ok := c.descriptors[i].Attribute("header.origin"); ok {
			origin = v
			break
		}
	}
	if c.result.Decision.Allowed {
		s.o.Dialect.Set(h, &c.result)
	} else if d := s.o.Dialect.Deny(h, &c.result, origin); d.Own {
		resp.RawBody = d.Body
	} else {
		h.Del("Content-Type")
	}
	for name, values := range h {
		for _, v := range values {
			resp.ResponseHeadersToAdd = append(resp.ResponseHeadersToAdd, &core.HeaderValue{Key: strings.ToLower(name), Value: v})
		}
	}
	slices.SortFunc(resp.ResponseHeadersToAdd, func(a, b *core.HeaderValue) int { return strings.Compare(a.Key, b.Key) })
}

// maxKept is for how many descriptors a pooled call keeps its memory.
const maxKept = 16

func (s *Service) release(c *call) {
	clear(c.descriptors)
	clear(c.requests)
	c.descriptors, c.requests = c.descriptors[:0], c.requests[:0]
	if cap(c.requests) <= maxKept {
		s.calls.Put(c)
	}
}
