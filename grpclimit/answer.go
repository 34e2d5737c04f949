package grpclimit

import (
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/policy"
)

// An answer is what was decided about a call, by a limiter or by rules.
type answer struct {
	decision   stint.Decision
	limits     []limitAnswer // the limits that it was held to
	tightest   int           // index in limits; -1 if there is none
	violated   []string
	told       []string // those in violated that the client may know
	key        string
	never      bool // a block, or a required key that is missing
	closed     bool // a rule denied under on_store_failure: closed
	waited     time.Duration
	storeError error
	rules      *policy.Result
	done       func() // releases rules
	end        func() // gives back the call's places in flight; may be nil
	settle     settlement
	looks      bool // settle looks at the metadata of the response
}

// A limitAnswer is one limit that a call was held to.
type limitAnswer struct {
	name   string
	fields *ratefields.Limit
	reset  time.Duration
	among  int // reset is the longest of so many limits
}

func (a *answer) release() {
	if a.done != nil {
		a.done()
	}
}

// The errors of calls about which no decision was made.
var (
	refuseError   = status.Error(codes.Unavailable, "the rate limiter could not decide")
	refuseServer  = status.Error(codes.Internal, "the rate limiter does not learn what its rules look at")
	refuseRequest = status.Error(codes.InvalidArgument, "the rate limiter cannot read the request")
)

func (a *answer) refusal() error {
	switch {
	case a.never:
		return status.Error(codes.PermissionDenied, "not allowed")
	case a.closed:
		return withDetails(codes.Unavailable, "the rate limiter could not decide", a.retryInfo()...)
	}
	details := a.retryInfo()
	failure := &errdetails.QuotaFailure{}
	for _, name := range a.told {
		failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{Subject: name, Description: "limit exceeded"})
	}
	info := &errdetails.ErrorInfo{Reason: "RATE_LIMITED", Domain: "stint", Metadata: map[string]string{}}
	if a.tightest >= 0 {
		h := &a.limits[a.tightest]
		info.Metadata["limit"] = h.name
		info.Metadata["remaining"] = strconv.FormatInt(a.decision.Remaining, 10)
	}
	return withDetails(codes.ResourceExhausted, "rate limit exceeded", append(details, failure, info)...)
}

func (a *answer) retryInfo() []protoadapt.MessageV1 {
	wait, ok := a.decision.RetryAfter.Duration()
	if !ok {
		return nil
	}
	return []protoadapt.MessageV1{&errdetails.RetryInfo{RetryDelay: durationpb.New(max(wait, 1))}}
}

func withDetails(code codes.Code, text string, details ...protoadapt.MessageV1) error {
	st := status.New(code, text)
	if full, err := st.WithDetails(details...); err == nil {
		st = full
	}
	return st.Err()
}
