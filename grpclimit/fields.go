package grpclimit

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
)

// The names of metadata.
const (
	fieldPolicy    = "ratelimit-policy"
	fieldRateLimit = "ratelimit"
	fieldRetry     = "retry-after"
)

// maxInteger is the greatest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// fields tells clients where they stand, as package httplimit does for HTTP. It
// remembers how to tell of each limit.
type fields struct {
	policies sync.Map // of policyKey to string
	count    atomic.Int64
}

type policyKey struct {
	name  string
	limit stint.Limit
}

// mostKnown bounds what is remembered, at some hundred bytes each.
const mostKnown = 10_000

// of returns the metadata of an answer.
func (f *fields) of(a *answer) map[string][]string {
	m := make(map[string][]string, 3)
	if a.tightest >= 0 {
		policy := f.policy(a.held[0])
		if len(a.held) > 1 {
			all := make([]string, len(a.held))
			for i, h := range a.held {
				all[i] = f.policy(h)
			}
			policy = strings.Join(all, ", ")
		}
		m[fieldPolicy] = []string{policy}
		m[fieldRateLimit] = []string{a.rateLimit()}
	}
	if _, ok := a.decision.RetryAfter.Duration(); ok && !a.decision.Allowed {
		m[fieldRetry] = []string{strconv.FormatInt(max(a.decision.RetryAfter.Seconds(), 1), 10)}
	}
	return m
}

// policy returns a limit as "name";q=100;w=60.
func (f *fields) policy(h held) string {
	key := policyKey{h.name, h.limit}
	if text, ok := f.policies.Load(key); ok {
		return text.(string)
	}
	q, d := h.limit.Capacity(), span(h.limit)
	if d < time.Second { // as many as pass in the shortest window that can be told
		q, d = max(mulDiv(q, int64(time.Second), max(int64(d), 1)), 1), time.Second
	}
	text := quote(h.name) + ";q=" + strconv.FormatInt(min(q, maxInteger), 10) +
		";w=" + strconv.FormatInt(min(seconds(d), maxInteger), 10)
	if f.count.Add(1) <= mostKnown {
		f.policies.Store(key, text)
	}
	return text
}

// rateLimit returns where the call stands, as "name";r=4;t=12: a bucket's t is
// long enough that r/t is never above its pace.
func (a *answer) rateLimit() string {
	h := &a.held[a.tightest]
	remaining := min(max(a.decision.Remaining, 0), maxInteger)
	wait := min(h.reset, span(h.limit))
	retry, ok := a.decision.RetryAfter.Duration()
	switch {
	case !a.decision.Allowed && ok:
		wait = retry
	case paced(h.limit):
		wait = max(wait, time.Duration(mulDiv(remaining, int64(h.limit.Period()), h.limit.Count())))
	}
	return quote(h.name) + ";r=" + strconv.FormatInt(remaining, 10) + ";t=" + strconv.FormatInt(min(max(seconds(wait), 1), maxInteger), 10)
}

// paced reports whether a limit gives back at a pace, and not by windows.
func paced(l stint.Limit) bool {
	k := l.Algorithm()
	return k == stint.GCRA || k == stint.LeakyQueue || k == stint.TokenBucketInterval
}

// span returns how long a key's whole capacity takes to come back.
func span(l stint.Limit) time.Duration {
	switch l.Algorithm() {
	case stint.GCRA, stint.LeakyQueue:
		return time.Duration(mulDiv(l.Capacity(), int64(l.Period()), l.Count()))
	case stint.TokenBucketInterval:
		return time.Duration(mulDiv((l.Capacity()-1)/l.Count()+1, int64(l.Period()), 1))
	}
	return l.Period()
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return stint.Wait(max(d, 0)).Seconds() }

// quote returns a name as a structured-field string; what that cannot hold is
// percent-encoded.
func quote(name string) string {
	const hex = "0123456789ABCDEF"
	b := append(make([]byte, 0, len(name)+2), '"')
	for _, c := range []byte(name) {
		switch {
		case c < ' ' || c > '~':
			b = append(b, '%', hex[c>>4], hex[c&15])
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
