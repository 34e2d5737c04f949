// Package otlp sends spans of decisions to an OpenTelemetry collector, by the SDK and OTLP over
// HTTP. It sends no metrics, since collectors can scrape /metrics.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-dev/stint/internal/ports"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/observe"
)

const (
	// mostSpans is how many spans may wait to be sent; further spans are dropped.
	mostSpans = 2048
	// sendWithin bounds one request to the collector. lastWithin bounds the requests at the end,
	// since the process waits for them.
	sendWithin, lastWithin = 3 * time.Second, time.Second
)

// Options are the options of an Exporter. All are required.
type Options struct {
	// URL is the collector's address for OTLP over HTTP, such as http://127.0.0.1:4318.
	URL string
	// Version is the version of this program.
	Version string
	// Log receives failures to send.
	Log *slog.Logger
}

// An Exporter sends spans to a collector. Its methods may be called from many goroutines at once;
// only Run waits for the collector.
type Exporter struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// New returns an Exporter. The error says that the URL is no address of a collector. The SDK also
// reads the variables OTEL_EXPORTER_OTLP_…, except for the address.
func New(o Options) (*Exporter, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("want an address such as http://127.0.0.1:4318, of a collector that takes OTLP over HTTP")
	}
	if err := ports.Check(u); err != nil {
		return nil, err
	}
	sender, err := otlptracehttp.New(context.Background(), otlptracehttp.WithTimeout(sendWithin),
		otlptracehttp.WithEndpointURL(strings.TrimSuffix(u.String(), "/")+"/v1/traces"))
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Log.Warn("--otlp", "error", err) }))
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())),
		sdk.WithBatcher(sender, sdk.WithMaxQueueSize(mostSpans), sdk.WithExportTimeout(sendWithin)),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "stint"), attribute.String("service.version", o.Version))))
	return &Exporter{provider, provider.Tracer("github.com/stint-dev/stint")}, nil
}

// Run waits until ctx is done, and then sends the remaining spans, within a second.
func (e *Exporter) Run(ctx context.Context) {
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWithin)
	defer cancel()
	if err := e.provider.Shutdown(last); err != nil {
		otel.Handle(err)
	}
}

// Decided makes a span for a decision on a request whose trace is sampled. The span is a child of
// the request's, and lasts as long as the decision and the wait. It has the names of package
// otellimit.
func (e *Exporter) Decided(r *policy.Result, q observe.Request) {
	of, ok := q.Trace()
	if !ok || !of.Sampled {
		return
	}
	id, err := trace.TraceIDFromHex(of.ID)
	parent, err2 := trace.SpanIDFromHex(of.Parent)
	if cmp.Or(err, err2) != nil {
		return
	}
	now := time.Now()
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: parent, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
	const prefix = "stint.rate_limiting."
	_, span := e.tracer.Start(ctx, "stint.rate_limit", trace.WithTimestamp(now.Add(-q.Took-q.Waited)), trace.WithAttributes(
		attribute.String(prefix+"result", resultOf(r)),
		attribute.Int64(prefix+"limit", r.Decision.Limit), attribute.Int64(prefix+"remaining", r.Decision.Remaining)))
	if r.Tightest >= 0 {
		span.SetAttributes(attribute.String(prefix+"policy", r.Rules[r.Tightest].Rule))
	}
	if wait, ok := r.Decision.RetryAfter.Duration(); ok && !r.Decision.Allowed {
		span.SetAttributes(attribute.Float64(prefix+"retry_after", wait.Seconds()))
	}
	if r.StoreError != nil {
		span.SetStatus(codes.Error, "the store could not decide") // the error's text may name servers
	}
	span.End(trace.WithTimestamp(now))
}

// resultOf returns the result of the whole request.
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
