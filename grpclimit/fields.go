package grpclimit

import (
	"strconv"
	"strings"
)

// The names of metadata.
const (
	fieldPolicy    = "ratelimit-policy"
	fieldRateLimit = "ratelimit"
	fieldRetry     = "retry-after"
)

// fields returns the metadata of an answer, which tells clients where they stand. It is named
// as the fields of package httplimit.
func (a *answer) fields() map[string][]string {
	m := make(map[string][]string, 3)
	if a.tightest >= 0 {
		all := make([]string, len(a.limits))
		for i, h := range a.limits {
			all[i] = h.fields.Policy[0]
		}
		m[fieldPolicy] = []string{strings.Join(all, ", ")}
		h := a.limits[a.tightest]
		d, l := a.decision, h.fields
		d.ResetAfter = h.reset
		d.ResetAfter = l.Reset(&d, h.among)
		m[fieldRateLimit] = []string{l.RateLimit(&d)}
	}
	if _, ok := a.decision.RetryAfter.Duration(); ok && !a.decision.Allowed {
		m[fieldRetry] = []string{strconv.FormatInt(max(a.decision.RetryAfter.Seconds(), 1), 10)}
	}
	return m
}
