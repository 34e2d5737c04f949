package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/internal/testkit/leaktest"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

func TestMain(m *testing.M) { leaktest.Main(m, goleak.Find) }

const someRules = `
trusted_proxies: [127.0.0.1, 192.0.2.250]
rules:
  - name: login
    match: {method: POST, path: /login}
    key: [ip]
    limits: ["5 per minute sliding_log"]
  - name: banned
    match: {header.x-bad: "1"}
    block: true
  - name: api
    match: {path: /api/**}
    key: [header.x-api-key]
    limits: ["10/h burst 20", {limit: "100 per hour burst 100", name: hourly}]
    on_missing: deny
  - name: queue
    match: {path: /queue}
    key: [ip]
    limits: ["1/h burst 5 leaky_queue"]
  - name: tokens
    match: {path: /llm}
    key: [query.user]
    limits: ["1000 per hour"]
  - name: trial
    match: {path: /trial}
    key: []
    limits: ["2 per hour"]
    shadow: true
  - name: free
    match: {path: /free}
    unlimited: true
  - name: pool
    match: {path: /gpu}
    key: []
    limits: 1 in flight
  - name: work
    match: {path: /work}
    key: [query.user]
    limits: ["10_000 per hour"]
  - name: requests
    match: {path: /work}
    key: [query.user]
    limits: ["50 per hour"]
  - name: places
    match: {path: /work}
    key: [query.user]
    limits: 2 in flight
  - name: own
    match: {path: /own}
    key: [ip]
    limits: ["1 per hour"]
    denied: {status: 420, headers: {X-Rule: "{rule}"}, body: '{"wait": {retry_after}}'}
    cors: [https://app.example.com]
    fields: hide
`

// newOptions returns what a Handler needs, for rules as text.
func newOptions(tb testing.TB, text string) server.Options {
	tb.Helper()
	file, err := rules.Decode("rules.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	tb.Cleanup(func() { _ = store.Close() })
	source, err := rules.Open(store, "", file, rules.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	observer := observe.New(observe.Options{})
	tb.Cleanup(observer.Close)
	o := server.Options{
		Source: source, Observer: observer, Admin: &server.Admin{Source: source, Observer: observer}, Open: true,
	}
	o.Client.Trusted = source.Settings().TrustedProxies
	return o
}

// post sends a body to a path of a handler.
func post(h http.Handler, path, body string, with ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, change := range with {
		change(r)
	}
	return served(h, r)
}
