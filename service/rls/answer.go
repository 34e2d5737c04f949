package rls

import (
	"math"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
)

// The parts of a status, made at once.
type room struct {
	status pb.RateLimitResponse_DescriptorStatus
	limit  pb.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// respond returns the answer to a request that was decided.
func respond(r *policy.Result) *pb.RateLimitResponse {
	resp := &pb.RateLimitResponse{OverallCode: code(r.Decision.Allowed)}
	resp.Statuses = make([]*pb.RateLimitResponse_DescriptorStatus, len(r.Answers))
	rooms := make([]room, len(r.Answers))
	for i := range r.Answers {
		rooms[i].fill(r, &r.Answers[i])
		resp.Statuses[i] = &rooms[i].status
	}
	return resp
}

func code(allowed bool) pb.RateLimitResponse_Code {
	if allowed {
		return pb.RateLimitResponse_OK
	}
	return pb.RateLimitResponse_OVER_LIMIT
}

// fill writes the status of one descriptor: about the tightest limit that it
// was held to, and without a limit if there was none.
func (m *room) fill(r *policy.Result, a *policy.Answer) {
	m.status.Code = code(a.Allowed)
	if a.Tightest < 0 || r.Rules[a.Tightest].Action != "" {
		if a.Allowed && unlimited(r, a) {
			m.status.LimitRemaining = math.MaxUint32
		}
		return
	}
	e := &r.Rules[a.Tightest]
	if e.Hidden() {
		return
	}
	m.limit.Name = e.Label
	m.limit.RequestsPerUnit, m.limit.Unit, m.limit.UnitMultiplier = unitOf(e.Limit)
	m.status.CurrentLimit = &m.limit
	m.status.LimitRemaining = uint32(min(max(e.Remaining, 0), math.MaxUint32))
	wait := stint.Wait(e.ResetAfter)
	if e.Denied {
		wait = e.RetryAfter
	}
	if wait != stint.Never { // which no duration says
		m.reset.Seconds = wait.Seconds()
		m.status.DurationUntilReset = &m.reset
	}
}

// unlimited reports whether a rule lets the request pass whatever others say.
func unlimited(r *policy.Result, a *policy.Answer) bool {
	for i := a.First; i < a.Past; i++ {
		if r.Rules[i].Action == "unlimited" && !r.Rules[i].Shadow {
			return true
		}
	}
	return false
}

// denyByQuotas denies a request if no descriptor that rules with shadow: quota match has
// room under them: one is enough, as for quota_mode of envoyproxy/ratelimit.
func denyByQuotas(r *policy.Result) {
	soonest := -1 // that has room again
	for i := range r.Answers {
		matched, over := false, false
		for k := r.Answers[i].First; k < r.Answers[i].Past; k++ {
			e := &r.Rules[k]
			if !e.Quota {
				continue
			}
			matched, over = true, over || e.Denied
			if e.Denied && (soonest < 0 || uint64(e.RetryAfter) < uint64(r.Rules[soonest].RetryAfter)) { // never is the longest
				soonest = k
			}
		}
		if matched && !over {
			return
		}
	}
	if soonest >= 0 && r.Decision.Allowed {
		r.Decision.Allowed, r.Decision.RetryAfter, r.Tightest = false, r.Rules[soonest].RetryAfter, soonest
	}
}

var units = [...]struct {
	length time.Duration
	unit   pb.RateLimitResponse_RateLimit_Unit
}{
	{year, pb.RateLimitResponse_RateLimit_YEAR}, {month, pb.RateLimitResponse_RateLimit_MONTH},
	{week, pb.RateLimitResponse_RateLimit_WEEK}, {day, pb.RateLimitResponse_RateLimit_DAY},
	{time.Hour, pb.RateLimitResponse_RateLimit_HOUR}, {time.Minute, pb.RateLimitResponse_RateLimit_MINUTE},
	{time.Second, pb.RateLimitResponse_RateLimit_SECOND},
}

// unitOf returns a limit in Envoy's units: in one unit if there is one of its
// period's length, else as several of the longest that divides it, of a week at
// most. A period that is no whole number of seconds is given per second if that
// comes out even, and otherwise has no unit, so that Envoy leaves out the window.
func unitOf(l stint.Limit) (count uint32, unit pb.RateLimitResponse_RateLimit_Unit, multiplier *wrapperspb.UInt32Value) {
	n, period := l.Count(), l.Period()
	if period < time.Second && time.Second%period == 0 && n <= math.MaxUint32 {
		n, period = n*int64(time.Second/period), time.Second
	}
	count = uint32(min(n, math.MaxUint32))
	for _, u := range units {
		if period == u.length {
			return count, u.unit, nil
		}
	}
	for _, u := range units[2:] {
		if times := period / u.length; period%u.length == 0 && times <= math.MaxUint32 {
			return count, u.unit, wrapperspb.UInt32(uint32(times))
		}
	}
	return count, pb.RateLimitResponse_RateLimit_UNKNOWN, nil
}

// denial is the answer to a request of which descriptor i is at fault. It is
// denied and not an error, since Envoy by default lets pass what it gets no answer
// to, and a client could then choose not to be limited.
func denial(descriptors []*ratelimit.RateLimitDescriptor, i int) *pb.RateLimitResponse {
	resp := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OVER_LIMIT}
	for k := range descriptors {
		resp.Statuses = append(resp.Statuses, &pb.RateLimitResponse_DescriptorStatus{Code: code(k != i)})
	}
	return resp
}
