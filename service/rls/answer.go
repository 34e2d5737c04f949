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

// A room is the parts of one status, allocated at once.
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

// fill writes the status of one descriptor: it has the tightest limit that the descriptor was held
// to, or no limit if there was none.
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
	if wait != stint.Never { // no duration stands for never
		m.reset.Seconds = wait.Seconds()
		m.status.DurationUntilReset = &m.reset
	}
}

// unlimited reports whether a rule lets the request pass whatever other rules decide.
func unlimited(r *policy.Result, a *policy.Answer) bool {
	for i := a.First; i < a.Past; i++ {
		if r.Rules[i].Action == "unlimited" && !r.Rules[i].Shadow {
			return true
		}
	}
	return false
}

// denyByQuotas denies a request if none of its descriptors has room under rules with shadow: quota.
// One with room is enough, as in quota_mode of envoyproxy/ratelimit.
func denyByQuotas(r *policy.Result) {
	soonest := -1 // index of the first to have room again
	for i := range r.Answers {
		matched, over := false, false
		for k := r.Answers[i].First; k < r.Answers[i].Past; k++ {
			e := &r.Rules[k]
			if !e.Quota {
				continue
			}
			matched, over = true, over || e.Denied
			if e.Denied && (soonest < 0 || uint64(e.RetryAfter) < uint64(r.Rules[soonest].RetryAfter)) { // as uint64, never is the longest
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

// unitOf returns a limit in Envoy's units. If a unit has the length of the period, it is that unit,
// otherwise a multiple of the longest unit, up to a week, that divides the period. A period that is
// no whole number of seconds is given per second if the count then is whole, and otherwise has no
// unit, so that Envoy leaves out the window.
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

// denial is the answer to a request whose descriptor i is at fault. It is a denial and not an
// error, since by default Envoy lets a request pass after an error, and a client could then choose
// not to be limited.
func denial(descriptors []*ratelimit.RateLimitDescriptor, i int) *pb.RateLimitResponse {
	resp := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OVER_LIMIT}
	for k := range min(len(descriptors), MaxDescriptors+1) {
		resp.Statuses = append(resp.Statuses, &pb.RateLimitResponse_DescriptorStatus{Code: code(k != i)})
	}
	return resp
}
