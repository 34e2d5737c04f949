package otlp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/cmd/internal/service/observe"
	"github.com/stint-dev/stint/cmd/internal/service/otlp"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	parent  = "b7ad6b7169203331"
)

// result is an answer of two rules.
func result(allowed bool) *policy.Result {
	r := &policy.Result{}
	r.Decision = stint.Decision{Allowed: allowed, Limit: 1 << 62, Remaining: 3}
	r.Tightest = -1
	return r
}

// TestExporter sends spans to a collector, and the sums and histograms of the
// metrics; spans beyond the exporter's room are dropped and counted.
func TestExporter(t *testing.T) {
	var mu sync.Mutex
	got := make(map[string][]byte)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] = body
		if r.Header.Get("Content-Type") != "application/json" || !json.Valid(body) {
			t.Errorf("%s: %s: %.100s", r.URL.Path, r.Header.Get("Content-Type"), body)
		}
	}))
	defer collector.Close()
	var log strings.Builder
	e, err := otlp.New(otlp.Options{URL: collector.URL + "/", Version: "v1", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	o := observe.New(observe.Options{Spans: e.Decided})
	defer o.Close()
	sampled := http.Header{"Traceparent": {"00-" + traceID + "-" + parent + "-01"}}
	o.Decided("http", result(true), observe.Request{Took: time.Microsecond, Header: sampled})
	o.Decided("http", result(false), observe.Request{Took: time.Microsecond, Header: http.Header{"Traceparent": {"00-" + traceID + "-" + parent + "-00"}}})
	o.Decided("http", result(false), observe.Request{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	e.Run(ctx, o.Gather)
	mu.Lock()
	defer mu.Unlock()
	var spans struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct{ TraceID, SpanID, ParentSpanID, StartTimeUnixNano string }
			}
		}
	}
	if err := json.Unmarshal(got["/v1/traces"], &spans); err != nil {
		t.Fatal(err)
	}
	all := spans.ResourceSpans[0].ScopeSpans[0].Spans
	if len(all) != 1 || all[0].TraceID != traceID || all[0].ParentSpanID != parent || len(all[0].SpanID) != 16 || all[0].StartTimeUnixNano == "" {
		t.Errorf("%+v", all)
	}
	for _, want := range []string{`"name":"stint_decisions_total"`, `"isMonotonic":true`, `"aggregationTemporality":2`, `"bucketCounts":[`, `"service.version"`} {
		if !strings.Contains(string(got["/v1/metrics"]), want) {
			t.Errorf("no %s in %s", want, got["/v1/metrics"])
		}
	}
	if to := os.Getenv("OTLP_DIR"); to != "" { // for who has the protocol's own reader
		for path, body := range got {
			_ = os.WriteFile(to+"/"+path[4:], body, 0o600)
		}
	}
}

// TestExporterBounded tells more than has room, while the collector refuses.
func TestExporterBounded(t *testing.T) {
	var well atomic.Bool
	var got atomic.Int64 // spans
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !well.Load() {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		got.Add(int64(strings.Count(string(body), `"spanId"`)))
	}))
	defer collector.Close()
	var log strings.Builder
	e, err := otlp.New(otlp.Options{URL: collector.URL, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	decide := func(n int) {
		for range n {
			e.Decided(result(true), observe.Request{Header: http.Header{"Traceparent": {"00-" + traceID + "-" + parent + "-01"}}})
		}
	}
	decide(3000)
	o := observe.New(observe.Options{})
	defer o.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	e.Run(ctx, o.Gather)
	for _, want := range []string{"spans=952", "/v1/traces answers 404", "/v1/metrics answers 404"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log.String())
		}
	}
	well.Store(true)
	decide(1000)
	if e.Run(ctx, o.Gather); got.Load() != 1000 {
		t.Errorf("after the flood: %d of 1000 spans arrive", got.Load())
	}
	for _, bad := range []string{"", "127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://u:secret@h", "http://h/?a=b"} {
		if _, err := otlp.New(otlp.Options{URL: bad}); err == nil || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// hung is a collector that takes requests and answers none.
type hung struct{}

func (hung) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestExporterStops: a collector that hangs holds up the end of the process for a
// second, whatever is being sent and is left to send.
func TestExporterStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := otlp.New(otlp.Options{URL: "http://192.0.2.1:4318", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		e.Through(hung{})
		o := observe.New(observe.Options{Spans: e.Decided})
		defer o.Close()
		decide := func() {
			o.Decided("http", result(true), observe.Request{Header: http.Header{"Traceparent": {"00-" + traceID + "-" + parent + "-01"}}})
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			e.Run(ctx, o.Gather)
			close(done)
		}()
		decide()
		time.Sleep(6 * time.Second) // these spans are on their way
		decide()
		stop()
		asked := time.Now()
		<-done
		if took := time.Since(asked); took > time.Second { // of the bubble's clock
			t.Errorf("it ended after %v", took)
		}
	})
}
