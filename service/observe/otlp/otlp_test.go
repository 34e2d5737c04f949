package otlp_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/observe/otlp"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	parent  = "b7ad6b7169203331"
)

// A collector keeps the spans that it is sent.
type collector struct {
	mu  sync.Mutex
	got []*spans.Span
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	text, err := io.ReadAll(body)
	var sent collect.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(text, &sent) != nil {
		http.NotFound(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range sent.GetResourceSpans() {
		for _, in := range of.GetScopeSpans() {
			c.got = append(c.got, in.GetSpans()...)
		}
	}
}

// result is an answer without rules.
func result(allowed bool) *policy.Result {
	r := &policy.Result{}
	r.Decision = stint.Decision{Allowed: allowed, Limit: 1 << 62, Remaining: 3}
	r.Tightest = -1
	return r
}

// TestExporter decides requests of a trace that is sampled, of one that is not, and
// of none: a collector gets the span of the first, as a child of the request's.
func TestExporter(t *testing.T) {
	c := &collector{}
	server := httptest.NewServer(c)
	defer server.Close()
	e, err := otlp.New(otlp.Options{URL: server.URL + "/", Version: "v1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	o := observe.New(observe.Options{Spans: e.Decided})
	defer o.Close()
	for _, flags := range []string{"-01", "-00"} {
		o.Decided("http", result(true), observe.Request{Took: time.Microsecond, Header: http.Header{"Traceparent": {"00-" + traceID + "-" + parent + flags}}})
	}
	o.Decided("http", result(false), observe.Request{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	e.Run(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) != 1 {
		t.Fatalf("%d spans", len(c.got))
	}
	s := c.got[0]
	if hex.EncodeToString(s.GetTraceId()) != traceID || hex.EncodeToString(s.GetParentSpanId()) != parent || s.GetName() != "stint.rate_limit" ||
		s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano() != 1000 || !strings.Contains(s.String(), `"stint.rate_limiting.remaining"`) {
		t.Errorf("%v", s)
	}
}

// TestExporterGone decides and ends while the collector refuses: the log says so,
// and nothing waits for long.
func TestExporterGone(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var log strings.Builder
	e, err := otlp.New(otlp.Options{URL: server.URL, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		e.Decided(result(true), observe.Request{Header: http.Header{"Traceparent": {"00-" + traceID + "-" + parent + "-01"}}})
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	e.Run(ctx)
	if !strings.Contains(log.String(), "404") {
		t.Errorf("the log: %q", log.String())
	}
}

// TestNew refuses what is no address of a collector.
func TestNew(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:4318", "ftp://h", "http://", "http://u:p@h:1", "http://h:1?x=y"} {
		if _, err := otlp.New(otlp.Options{URL: address}); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}
