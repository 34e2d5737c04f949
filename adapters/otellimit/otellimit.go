package otellimit

import (
	"context"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/policy"
)

// scope names the source of the spans and metrics.
const scope = "github.com/stint-dev/stint/adapters/otellimit"

// The names of attributes.
const (
	resultKey     = attribute.Key("stint.rate_limiting.result")
	policyKey     = attribute.Key("stint.rate_limiting.policy")
	limitKey      = attribute.Key("stint.rate_limiting.limit")
	remainingKey  = attribute.Key("stint.rate_limiting.remaining")
	retryAfterKey = attribute.Key("stint.rate_limiting.retry_after")
)

// Options are the providers of a Telemetry. The zero value uses the global providers
// of the program.
type Options struct {
	// Tracer makes spans. The default is otel.GetTracerProvider.
	Tracer trace.TracerProvider
	// Meter counts. The default is otel.GetMeterProvider.
	Meter metric.MeterProvider
}

// A Telemetry reports decisions to OpenTelemetry. It may be used from many
// goroutines at once.
type Telemetry struct {
	tracer   trace.Tracer
	requests metric.Int64Counter
	duration metric.Float64Histogram
	queued   metric.Float64Histogram
	sets     sync.Map // attribute sets by said, one for each rule and result
}

// A said is the verdict of a rule.
type said struct{ policy, result string }

// New returns a Telemetry. The error is that of the meter.
func New(o Options) (*Telemetry, error) {
	if o.Tracer == nil {
		o.Tracer = otel.GetTracerProvider()
	}
	if o.Meter == nil {
		o.Meter = otel.GetMeterProvider()
	}
	t, meter := &Telemetry{tracer: o.Tracer.Tracer(scope)}, o.Meter.Meter(scope)
	var err error
	if t.requests, err = meter.Int64Counter("stint.rate_limiting.requests", metric.WithUnit("{request}"),
		metric.WithDescription("What each rule said to requests.")); err != nil {
		return nil, err
	}
	if t.duration, err = meter.Float64Histogram("stint.rate_limiting.decision.duration", metric.WithUnit("s"),
		metric.WithDescription("How long decisions took."),
		metric.WithExplicitBucketBoundaries(1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1)); err != nil {
		return nil, err
	}
	t.queued, err = meter.Float64Histogram("stint.rate_limiting.request.time_in_queue", metric.WithUnit("s"),
		metric.WithDescription("How long requests waited for their turn."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10))
	return t, err
}

// A Decision is a decision, and how long it took.
type Decision struct {
	// Answer is the answer of the limiter or the policy.
	Answer stint.Decision
	// Name is the name of the limiter, if there is no policy.
	Name string
	// Rules is the full answer of the policy; nil without a policy. It is not kept.
	Rules *policy.Result
	// Shadow says that the request passes whatever Answer says.
	Shadow bool
	// Took is how long the decision took. Waited is how long the request then waited in the queue.
	Took, Waited time.Duration
}

// HTTP reports a decision of package httplimit. Use it as [httplimit.Options.OnDecision].
func (t *Telemetry) HTTP(r *http.Request, o httplimit.Outcome) {
	t.Decided(r.Context(), Decision{Answer: o.Decision, Rules: o.Rules, Shadow: o.Shadow, Took: o.Took, Waited: o.Waited})
}

// Decided reports a decision that has just been made. The span is a child of
// the one in ctx.
func (t *Telemetry) Decided(ctx context.Context, d Decision) {
	now := time.Now()
	result := resultOf(&d)
	_, span := t.tracer.Start(ctx, "stint.rate_limit", trace.WithTimestamp(now.Add(-d.Took-d.Waited)))
	if span.IsRecording() {
		span.SetAttributes(resultKey.String(result), limitKey.Int64(d.Answer.Limit), remainingKey.Int64(d.Answer.Remaining))
		if name := nameOf(&d); name != "" {
			span.SetAttributes(policyKey.String(name))
		}
		if wait, ok := d.Answer.RetryAfter.Duration(); ok && !d.Answer.Allowed {
			span.SetAttributes(retryAfterKey.Float64(wait.Seconds()))
		}
		if d.Rules != nil && d.Rules.StoreError != nil {
			span.SetStatus(codes.Error, "the store could not decide") // the error's text may name servers
		}
	}
	span.End(trace.WithTimestamp(now))
	if d.Took > 0 {
		t.duration.Record(ctx, d.Took.Seconds())
	}
	if d.Waited > 0 {
		t.queued.Record(ctx, d.Waited.Seconds())
	}
	t.count(ctx, &d, result)
}

// count counts the verdict of each rule, or of the limiter.
func (t *Telemetry) count(ctx context.Context, d *Decision, result string) {
	if d.Rules == nil || len(d.Rules.Rules) == 0 {
		t.add(ctx, said{d.Name, result})
		return
	}
	for _, e := range d.Rules.ByRule {
		t.add(ctx, said{e.Rule, e.Verdict().String()})
	}
}

func (t *Telemetry) add(ctx context.Context, s said) {
	set, ok := t.sets.Load(s)
	if !ok {
		set, _ = t.sets.LoadOrStore(s, metric.WithAttributeSet(attribute.NewSet(resultKey.String(s.result), policyKey.String(s.policy))))
	}
	t.requests.Add(ctx, 1, set.(metric.MeasurementOption))
}

// resultOf returns the result of the whole request.
func resultOf(d *Decision) string {
	switch {
	case d.Answer.Allowed && d.Rules != nil && d.Rules.ShadowDenied, !d.Answer.Allowed && d.Shadow:
		return "shadow_denied"
	case d.Answer.Allowed:
		return "allowed"
	case d.Rules != nil && d.Rules.Tightest >= 0 && d.Rules.Rules[d.Rules.Tightest].Action != "":
		return "blocked"
	}
	return "denied"
}

// nameOf returns the rule that the answer is about.
func nameOf(d *Decision) string {
	if d.Rules != nil && d.Rules.Tightest >= 0 {
		return d.Rules.Rules[d.Rules.Tightest].Rule
	}
	return d.Name
}
