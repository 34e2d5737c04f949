package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/adapters/otellimit"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// A recorder is an SDK whose spans and metrics can be looked at.
type recorder struct {
	spans  *tracetest.InMemoryExporter
	tracer *sdktrace.TracerProvider
	reader *sdkmetric.ManualReader
}

func newTelemetry(t testing.TB) (*otellimit.Telemetry, *recorder) {
	t.Helper()
	r := &recorder{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	r.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	telemetry, err := otellimit.New(otellimit.Options{Tracer: r.tracer, Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))})
	if err != nil {
		t.Fatal(err)
	}
	return telemetry, r
}

// counts returns the requests by policy and result, and how many a histogram has.
func (r *recorder) counts(t *testing.T) (requests map[string]int64, histograms map[string]uint64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	requests, histograms = make(map[string]int64), make(map[string]uint64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					policy, _ := p.Attributes.Value("stint.rate_limiting.policy")
					result, _ := p.Attributes.Value("stint.rate_limiting.result")
					requests[policy.AsString()+" "+result.AsString()] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					histograms[m.Name] += p.Count
				}
			}
		}
	}
	return requests, histograms
}

const document = `{"rules": [
	{"name": "bad", "match": {"path": "/bad"}, "block": true},
	{"name": "login", "match": {"path": "/login"}, "key": ["ip"], "limits": ["2 per hour", "3 per day"]},
	{"name": "trial", "key": ["ip"], "limits": ["1 per hour"], "shadow": true}]}`

// TestHTTP has spans that are children of the request's, metrics by rule, and no
// key in either.
func TestHTTP(t *testing.T) {
	telemetry, sdk := newTelemetry(t)
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, document), policy.Options{})
	guard, err := httplimit.NewPolicy(p, httplimit.ClientIP{}, httplimit.Options{OnDecision: telemetry.HTTP})
	if err != nil {
		t.Fatal(err)
	}
	ctx, parent := sdk.tracer.Tracer("test").Start(t.Context(), "request")
	handler := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, path := range []string{"/login", "/login", "/login", "/bad", "/"} {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	requests, histograms := sdk.counts(t)
	want := map[string]int64{"login allowed": 2, "login denied": 1, "trial allowed": 1, "trial shadow_denied": 3, "bad blocked": 1}
	if fmt.Sprint(requests) != fmt.Sprint(want) || histograms["stint.rate_limiting.decision.duration"] != 5 || histograms["stint.rate_limiting.request.time_in_queue"] != 0 {
		t.Errorf("%v, %v; want %v", requests, histograms, want)
	}
	var results []string
	for _, s := range sdk.spans.GetSpans() {
		if s.Name != "stint.rate_limit" || s.Parent.SpanID() != parent.SpanContext().SpanID() || s.EndTime.Before(s.StartTime) {
			t.Errorf("%+v", s)
		}
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.String(), "192.0.2.1") {
				t.Errorf("a key in %v", a)
			}
			if a.Key == "stint.rate_limiting.result" {
				results = append(results, a.Value.AsString())
			}
			if a.Key == "stint.rate_limiting.retry_after" && (a.Value.Type() != attribute.FLOAT64 || a.Value.AsFloat64() <= 0) {
				t.Errorf("%v", a)
			}
		}
	}
	if got := strings.Join(results, " "); got != "allowed shadow_denied denied blocked shadow_denied" {
		t.Error(got)
	}
}

// TestDecided reports decisions as a program does that calls a limiter itself, with
// times of its own.
func TestDecided(t *testing.T) {
	telemetry, sdk := newTelemetry(t)
	for _, d := range []otellimit.Decision{
		{Answer: stint.Decision{Allowed: true, Limit: 5, Remaining: 4}, Name: "api", Took: time.Millisecond, Waited: time.Second},
		{Answer: stint.Decision{RetryAfter: stint.Never}, Name: "api", Took: time.Millisecond},
		{Answer: stint.Decision{}, Name: "api", Shadow: true},
		{Answer: stint.Decision{Allowed: true}, Rules: &policy.Result{Tightest: -1, StoreError: errors.New("redis at 10.0.0.1")}},
	} {
		telemetry.Decided(context.Background(), d)
	}
	requests, histograms := sdk.counts(t)
	want := map[string]int64{"api allowed": 1, "api denied": 1, "api shadow_denied": 1, " allowed": 1}
	if fmt.Sprint(requests) != fmt.Sprint(want) || histograms["stint.rate_limiting.decision.duration"] != 2 || histograms["stint.rate_limiting.request.time_in_queue"] != 1 {
		t.Errorf("%v, %v; want %v", requests, histograms, want)
	}
	spans := sdk.spans.GetSpans()
	if len(spans) != 4 || spans[0].EndTime.Sub(spans[0].StartTime) != 1001*time.Millisecond {
		t.Errorf("%v", spans)
	}
	if s := spans[3].Status; s.Code != codes.Error || strings.Contains(s.Description, "10.0.0.1") {
		t.Errorf("%v", s)
	}
}

// TestGlobal needs no SDK at all.
func TestGlobal(t *testing.T) {
	telemetry, err := otellimit.New(otellimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	telemetry.Decided(t.Context(), otellimit.Decision{Answer: stint.Decision{Allowed: true}})
}

// BenchmarkHTTP is the price of a request, without an SDK and with one that
// keeps nothing.
func BenchmarkHTTP(b *testing.B) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	o := httplimit.Outcome{Decision: stint.Decision{Allowed: true, Limit: 5}, Took: time.Microsecond}
	none, err := otellimit.New(otellimit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	with, err := otellimit.New(otellimit.Options{Tracer: tracer, Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))})
	if err != nil {
		b.Fatal(err)
	}
	for name, t := range map[string]*otellimit.Telemetry{"none": none, "sdk": with} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t.HTTP(r, o)
			}
		})
	}
}
