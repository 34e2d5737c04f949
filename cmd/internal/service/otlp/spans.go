package otlp

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/cmd/internal/service/observe"
)

// A span is one as OTLP has it in JSON: IDs in hexadecimal, whole numbers of 64
// bits as text.
type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	Parent     string      `json:"parentSpanId"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes"`
	Status     *status     `json:"status,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

const (
	kindInternal = 1
	statusError  = 2
)

// Decided makes a span of a decision on a request that belongs to a trace which
// is sampled: a child of the request's, as long as the decision and the wait. It
// has the names that package otellimit gives.
func (e *Exporter) Decided(r *policy.Result, q observe.Request) {
	trace, ok := q.Trace()
	if !ok || !trace.Sampled {
		return
	}
	now := time.Now()
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	const prefix = "stint.rate_limiting."
	s := span{
		TraceID: trace.ID, SpanID: hex.EncodeToString(id[:]), Parent: trace.Parent, Name: "stint.rate_limit", Kind: kindInternal,
		Start: nanos(now.Add(-q.Took - q.Waited)), End: nanos(now),
		Attributes: []attribute{
			text(prefix+"result", resultOf(r)), intAttribute(prefix+"limit", r.Decision.Limit), intAttribute(prefix+"remaining", r.Decision.Remaining),
		},
	}
	if r.Tightest >= 0 {
		s.Attributes = append(s.Attributes, text(prefix+"policy", r.Rules[r.Tightest].Rule))
	}
	if wait, ok := r.Decision.RetryAfter.Duration(); ok && !r.Decision.Allowed {
		s.Attributes = append(s.Attributes, attribute{prefix + "retry_after", map[string]any{"doubleValue": wait.Seconds()}})
	}
	if r.StoreError != nil {
		s.Status = &status{statusError, "the store could not decide"} // what it says may name servers
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.spans) >= mostSpans {
		e.lost++
		return
	}
	e.spans = append(e.spans, s)
}

// resultOf is what became of the whole request.
func resultOf(r *policy.Result) string {
	switch {
	case r.Decision.Allowed && r.ShadowDenied:
		return "shadow_denied"
	case r.Decision.Allowed:
		return "allowed"
	case r.Tightest >= 0 && r.Rules[r.Tightest].Action != "":
		return "blocked"
	}
	return "denied"
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func intAttribute(key string, n int64) attribute {
	return attribute{key, map[string]any{"intValue": strconv.FormatInt(n, 10)}}
}
