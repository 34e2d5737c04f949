package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

// TestSecrets plants secrets that only their sender should see, in every place of a
// question, and looks for them in logs, metrics and answers.
func TestSecrets(t *testing.T) {
	const planted = "planted"
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	file, err := rules.Decode("rules.yaml", []byte(`
trusted_proxies: [127.0.0.1]
rules:
  - name: key
    key: [header.x-api-key, ip, cookie.c, query.q]
    limits: ["1 per 1000h"]
  - name: shadow
    key: [header.authorization, path]
    limits: ["1 per 1000h"]
    shadow: true
`))
	if err != nil {
		t.Fatal(err)
	}
	source, err := rules.Open(memstore.New(memstore.Options{}), "", file, rules.Options{Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	observer := observe.New(observe.Options{Log: logger})
	o := server.Options{Source: source, Observer: observer, Admin: &server.Admin{Source: source, Observer: observer}, Log: logger}
	o.Clients, o.Operators = writeTokens(t, planted+"-ask-0123456789"), writeTokens(t, planted+"-operator-0123456789")
	o.Client.Trusted = source.Settings().TrustedProxies
	h := server.NewHandler(o)
	var answers bytes.Buffer
	keep := func(w *httptest.ResponseRecorder) { fmt.Fprintln(&answers, w.Code, w.Header(), w.Body) }
	attributes := `{"header.x-api-key":"planted-key","ip":"192.0.2.99","cookie.c":"planted-c","query.q":"planted-q","header.authorization":"planted-a","path":"/planted"}`
	for _, token := range []string{"planted-ask-0123456789", "planted-operator-0123456789", "planted-nobody-0123456789", ""} {
		for _, path := range server.Verbs() {
			for _, body := range []string{
				`{"attributes":` + attributes + `}`, `{"attributes":` + attributes + `,"cost":1}`, `{"attributes":` + attributes + `,"cost":"planted"}`,
				`{"attributes":{"path":"/planted%2f"},"cost":1}`, `{"attributes":{"x":"planted\q"}}`, `{"attributes":{"x":planted}}`,
				`{"reservation":"planted","cost":1}`, `{"reservation":"planted"}`, `planted`, `{"attributes":{},"ttl":"planted"}`,
			} {
				keep(post(h, path, body, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }))
			}
		}
	}
	for range 3 {
		for _, uri := range []string{"/planted?q=planted-q", "/planted%2f", "\x00planted"} {
			keep(post(h, "/auth", "", func(r *http.Request) {
				r.RemoteAddr = "127.0.0.1:4711"
				r.Header = http.Header{
					"X-Forwarded-Method": {"planted"}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Host": {"planted"}, "X-Forwarded-For": {"192.0.2.99"},
					"X-Api-Key": {"planted-key"}, "Authorization": {"planted-a"}, "Cookie": {"c=planted-c"},
				}
			}))
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Authorization", "Bearer planted-ask-0123456789")
	metrics := served(h, r)
	observer.Close()
	for name, text := range map[string]string{"the log": logged.String(), "the metrics": metrics.Body.String(), "the answers": answers.String()} {
		for _, secret := range []string{planted, "192.0.2.99"} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s: %s: %s", name, secret, text[max(at-100, 0):min(at+100, len(text))])
			}
		}
	}
	for what, must := range map[string]string{"the log": logged.String(), "the metrics": metrics.Body.String()} {
		if !strings.Contains(must, "rule") { // or nothing was looked at
			t.Errorf("%s has nothing:\n%s", what, must)
		}
	}
	for _, line := range []string{"msg=refund token_line=1 cost=1 rule=key key_hash=", "msg=reset token_line=1 rule=key key_hash="} {
		if !strings.Contains(logged.String(), line) {
			t.Errorf("no %q in the log", line)
		}
	}
}
