package grpclimit

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
)

// The names of metadata.
const (
	fieldPolicy    = "ratelimit-policy"
	fieldRateLimit = "ratelimit"
	fieldRetry     = "retry-after"
)

// fields sends clients their limits, as package httplimit does for HTTP. It
// remembers how to tell of each limit.
type fields struct {
	known sync.Map // of limitKey to *ratefields.Limit
	count atomic.Int64
}

type limitKey struct {
	name  string
	limit stint.Limit
}

// mostKnown bounds what is remembered, at some hundred bytes each.
const mostKnown = 10_000

// of returns the metadata of an answer.
func (f *fields) of(a *answer) map[string][]string {
	m := make(map[string][]string, 3)
	if a.tightest >= 0 {
		all := make([]string, len(a.limits))
		for i, h := range a.limits {
			all[i] = f.limit(h).Policy()
		}
		m[fieldPolicy] = []string{strings.Join(all, ", ")}
		h := a.limits[a.tightest]
		d, l := a.decision, f.limit(h)
		d.ResetAfter = h.reset
		d.ResetAfter = l.Reset(&d, h.among)
		m[fieldRateLimit] = []string{l.RateLimit(&d)}
	}
	if _, ok := a.decision.RetryAfter.Duration(); ok && !a.decision.Allowed {
		m[fieldRetry] = []string{strconv.FormatInt(max(a.decision.RetryAfter.Seconds(), 1), 10)}
	}
	return m
}

// limit returns how fields tell of a limit.
func (f *fields) limit(h limitAnswer) *ratefields.Limit {
	key := limitKey{h.name, h.limit}
	if known, ok := f.known.Load(key); ok {
		return known.(*ratefields.Limit)
	}
	l := ratefields.Of(h.name, h.limit)
	if f.count.Add(1) <= mostKnown {
		f.known.Store(key, &l)
	}
	return &l
}
