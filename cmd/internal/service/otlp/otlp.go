// Package otlp sends spans of decisions, and the metrics, to an OpenTelemetry
// collector: OTLP over HTTP, as JSON. It does without the SDK, which is for
// programs that others instrument and would make the binary a tenth larger.
package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
)

const (
	// mostSpans is how many spans wait to be sent; of more, only the number is known.
	mostSpans = 2048
	// spansEvery and metricsEvery are how often they are sent.
	spansEvery, metricsEvery = 5 * time.Second, time.Minute
	// sendWithin is how long sending may take, lastWithin all that is sent at the
	// end: the process waits for it.
	sendWithin, lastWithin = 3 * time.Second, time.Second
)

// Options are what an Exporter needs.
type Options struct {
	// URL is the collector's, such as http://127.0.0.1:4318.
	URL string
	// Version is that of this program.
	Version string
	// Log receives failures to send.
	Log *slog.Logger
}

// An Exporter sends to a collector. Its methods may be called from many
// goroutines at once; none but Run waits for the collector.
type Exporter struct {
	o      Options
	client *http.Client
	began  time.Time

	mu    sync.Mutex
	spans []span
	lost  int // spans that found no room
}

// New returns an Exporter. The error is for what is no address of a collector.
func New(o Options) (*Exporter, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("want an address such as http://127.0.0.1:4318, of a collector that takes OTLP over HTTP")
	}
	o.URL = strings.TrimSuffix(u.String(), "/")
	return &Exporter{o: o, began: time.Now(), client: &http.Client{
		Timeout: sendWithin, Transport: http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Run sends until ctx is done, and then what is left, within a second. gather
// returns the metrics.
func (e *Exporter) Run(ctx context.Context, gather func() ([]*dto.MetricFamily, error)) {
	defer e.client.CloseIdleConnections()
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	context.AfterFunc(ctx, func() { time.AfterFunc(lastWithin, cut) }) // also of what is being sent then
	metrics := func() { e.sendMetrics(sending, gather) }
	spans, all := time.NewTicker(spansEvery), time.NewTicker(metricsEvery)
	defer spans.Stop()
	defer all.Stop()
	for {
		select {
		case <-ctx.Done():
			e.sendSpans(sending)
			metrics()
			return
		case <-spans.C:
			e.sendSpans(sending)
		case <-all.C:
			metrics()
		}
	}
}

func (e *Exporter) sendSpans(ctx context.Context) {
	e.mu.Lock()
	spans, lost := e.spans, e.lost
	e.spans, e.lost = nil, 0
	e.mu.Unlock()
	if lost > 0 {
		e.o.Log.Warn("--otlp: spans found no room", "spans", lost)
	}
	if len(spans) > 0 {
		e.send(ctx, "/v1/traces", map[string]any{"resourceSpans": []any{map[string]any{
			"resource": e.resource(), "scopeSpans": []any{map[string]any{"scope": e.scope(), "spans": spans}},
		}}})
	}
}

func (e *Exporter) sendMetrics(ctx context.Context, gather func() ([]*dto.MetricFamily, error)) {
	families, err := gather()
	if err != nil {
		e.o.Log.Warn("--otlp: metrics", "error", err)
	}
	e.send(ctx, "/v1/metrics", map[string]any{"resourceMetrics": []any{map[string]any{
		"resource": e.resource(), "scopeMetrics": []any{map[string]any{"scope": e.scope(), "metrics": e.metrics(families, time.Now())}},
	}}})
}

func (e *Exporter) resource() any {
	return map[string]any{"attributes": []attribute{text("service.name", "stint"), text("service.version", e.o.Version)}}
}

func (e *Exporter) scope() any { return map[string]string{"name": "github.com/stint-dev/stint"} }

// send posts JSON. What cannot be sent is lost: the next metrics have all, and
// spans are no book-keeping.
func (e *Exporter) send(ctx context.Context, path string, what any) {
	if err := e.post(ctx, path, what); err != nil {
		e.o.Log.Warn("--otlp", "error", err)
	}
}

func (e *Exporter) post(ctx context.Context, path string, what any) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.o.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s%s answers %s", e.o.URL, path, resp.Status)
	}
	return nil
}

// An attribute is one as OTLP has it.
type attribute struct {
	Key   string         `json:"key"`
	Value map[string]any `json:"value"`
}

func text(key, value string) attribute {
	return attribute{key, map[string]any{"stringValue": strings.ToValidUTF8(value, "\ufffd")}}
}
