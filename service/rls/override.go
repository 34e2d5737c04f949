package rls

import (
	"errors"
	"fmt"
	"math"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/observe/recent"
)

// maxOverrides is how many limits from requests are kept bound: the most recently used. Each costs
// the store a limit.
const maxOverrides = 1024

// overrideRule is the name of the rule for limits from requests. No real rule can have it.
const overrideRule = "(override)"

// A brought is a limit as a descriptor brings it: count requests in multiplier units.
type brought struct {
	count      uint32
	unit       typev3.RateLimitUnit
	multiplier uint32
}

// overrides are the limits that requests have brought.
type overrides = recent.Values[brought, *policy.CallerLimits]

// override returns the limits for what a descriptor brings. A limit that the store cannot hold
// denies everything, since Envoy lets a request pass after an error.
func (s *Service) override(p *policy.Policy, l *ratelimit.RateLimitDescriptor_RateLimitOverride) (*policy.CallerLimits, error) {
	b := brought{l.GetRequestsPerUnit(), l.GetUnit(), 1}
	if m := l.GetUnitMultiplier(); m != nil {
		b.multiplier = m.GetValue()
	}
	return s.overrides.Get(b, func() (*policy.CallerLimits, error) {
		limits, err := b.limits()
		if err != nil {
			return nil, err
		}
		for _, l := range limits { // at most one
			if err := s.o.RoomFor(overrideRule, l); err != nil {
				return nil, fmt.Errorf("limit: %w", err)
			}
		}
		g, err := p.BindCallerLimits(overrideRule, limits...)
		if err != nil {
			s.o.Observer.Failed(entrypoint, fmt.Errorf("limit: %w", err))
			return p.BindCallerLimits(overrideRule)
		}
		return g, nil
	})
}

// unitWeek is a week in an answer, and in envoyproxy/ratelimit's rules; Envoy's own type has no name for it.
const unitWeek = typev3.RateLimitUnit(pb.RateLimitResponse_RateLimit_WEEK)

// The lengths of Envoy's units. As in its reference service, a month is 30 days and a year 365;
// rules can name calendar months.
const (
	day   = 24 * time.Hour
	week  = 7 * day
	month = 30 * day
	year  = 365 * day
)

var unitLengths = map[typev3.RateLimitUnit]time.Duration{
	typev3.RateLimitUnit_SECOND: time.Second, typev3.RateLimitUnit_MINUTE: time.Minute, typev3.RateLimitUnit_HOUR: time.Hour,
	typev3.RateLimitUnit_DAY: day, unitWeek: week, typev3.RateLimitUnit_MONTH: month, typev3.RateLimitUnit_YEAR: year,
}

// limits returns the limit, or none if everything is denied.
func (b brought) limits() ([]stint.Limit, error) {
	unit, ok := unitLengths[b.unit]
	switch {
	case !ok:
		return nil, fmt.Errorf("limit: unit %d: there is SECOND (1), MINUTE, HOUR, DAY, MONTH, YEAR and WEEK (7)", b.unit)
	case b.multiplier == 0:
		return nil, errors.New("limit: unit_multiplier 0: at least 1")
	case b.count == 0:
		return nil, nil
	}
	period := time.Duration(math.MaxInt64) // longer than any store can hold
	if time.Duration(b.multiplier) <= period/unit {
		period = unit * time.Duration(b.multiplier)
	}
	l := stint.New(int64(b.count), period).WithAlgorithm(meter.FixedWindow)
	return []stint.Limit{l.WithName(overrideRule)}, nil // all under one name, so that a key has one state for each period
}
