package httplimit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
)

// ownAnswers is a file with an answer of its own, and a rule with another one.
const ownAnswers = `{
	"denied": {"headers": {"X-Rule": "{rule}"}, "body": "{\"error\": \"slow down\", \"rule\": \"{rule}\", \"retry_after\": {retry_after}}"},
	"cors": true,
	"rules": [
		{"name": "ban", "match": {"ip": "203.0.113.0/24"}, "block": true},
		{"name": "usual", "match": {"path": "/usual"}, "key": ["ip"], "limits": "1/1m", "denied": {"status": 420}, "cors": false},
		{"name": "page", "match": {"path": "/page"}, "key": ["ip"], "limits": "1/1m", "cors": ["https://app.example.com"],
			"denied": {"type": "text/html; charset=utf-8", "body": "<p>{retry_after} s", "headers": {"Cache-Control": "no-cache", "X-Wait": "{retry_after}"}}},
		{"name": "secret", "match": {"path": "/secret"}, "key": ["ip"], "limits": "1/1m", "fields": "hide"},
		{"name": "options", "match": {"path": "/usual", "method": "OPTIONS"}, "key": ["ip"], "limits": "1/1m"},
		{"name": "api", "key": ["ip"], "limits": ["2/1m"]}
	]}`

// preflight is what a browser sends.
const preflight = "Access-Control-Request-Method: PUT; Origin: https://app.example.com"

// TestDenied asks until it is denied, and reads the answer.
func TestDenied(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, from, header, body string
		asked                            int
		want                             string // the status, some named fields, and the body
		fields                           []string
	}{
		"of the file": {path: "/", from: "192.0.2.1", header: "Origin: https://a.example", asked: 3,
			fields: []string{"X-Rule", "Content-Type", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers", "Vary", "Retry-After"},
			want:   `429|api|application/json|https://a.example||X-Rule, Retry-After, Ratelimit-Policy, Ratelimit|Origin|30|{"error": "slow down", "rule": "api", "retry_after": 30}`},
		"no origin": {path: "/", from: "192.0.2.1", asked: 3, fields: []string{"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Vary"},
			want: `429|||Origin|{"error": "slow down", "rule": "api", "retry_after": 30}`},
		"a block": {path: "/", from: "203.0.113.7", asked: 1, fields: []string{"X-Rule", "Retry-After"},
			want: `403|ban||{"error": "slow down", "rule": "ban", "retry_after": null}`},
		"status alone": {path: "/usual", from: "192.0.2.1", header: "Accept: text/plain", asked: 2, fields: []string{"X-Rule", "Vary"},
			want: "420|||Quota Exceeded. Retry after 60 s.\n"},
		"the status in a problem": {path: "/usual", from: "192.0.2.1", asked: 2, fields: []string{"Content-Type"},
			want: `420|application/problem+json|{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":420,"violated-policies":["usual"]}` + "\n"},
		"a page": {path: "/page", from: "192.0.2.1", header: "Origin: https://app.example.com", asked: 2,
			fields: []string{"X-Wait", "Content-Type", "Cache-Control", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"},
			want:   "429|60|text/html; charset=utf-8|no-cache|https://app.example.com|true|<p>60 s"},
		"a page of another": {path: "/page", from: "192.0.2.1", header: "Origin: https://app.example.com.evil.example", asked: 2,
			fields: []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers", "Vary"}, want: "429||||Origin|<p>60 s"},
		"hidden": {path: "/secret", from: "192.0.2.1", asked: 2, fields: []string{"X-Rule", "Ratelimit-Policy", "Ratelimit", "Retry-After"},
			want: `429||"api";q=2;w=60|"api";r=1;t=30|60|{"error": "slow down", "rule": "", "retry_after": 60}`},
		"a preflight":                  {method: "OPTIONS", path: "/", from: "192.0.2.1", header: preflight, asked: 9, want: "200|"},
		"one of a block":               {method: "OPTIONS", path: "/", from: "203.0.113.7", header: preflight, asked: 1, want: "403|"},
		"one of an origin listed":      {method: "OPTIONS", path: "/page", from: "192.0.2.1", header: preflight, asked: 2, want: "200|"},
		"one of another":               {method: "OPTIONS", path: "/page", from: "192.0.2.1", header: preflight + ".evil.example", asked: 2, want: "429|"},
		"none without an origin":       {method: "OPTIONS", path: "/", from: "192.0.2.1", header: "Access-Control-Request-Method: PUT", asked: 3, want: "429|"},
		"none with cookies":            {method: "OPTIONS", path: "/", from: "192.0.2.1", header: "Cookie: ; " + preflight, asked: 3, want: "429|"},
		"none with credentials":        {method: "OPTIONS", path: "/", from: "192.0.2.1", header: "Authorization: Bearer x; " + preflight, asked: 3, want: "429|"},
		"none with a type of its body": {method: "OPTIONS", path: "/", from: "192.0.2.1", header: "Content-Type: text/plain; " + preflight, asked: 3, want: "429|"},
		"none with a body":             {method: "OPTIONS", path: "/", from: "192.0.2.1", header: preflight, body: "x", asked: 3, want: "429|"},
		"options":                      {method: "OPTIONS", path: "/", from: "192.0.2.1", asked: 3, fields: []string{"X-Rule"}, want: `429|api|{"error": "slow down", "rule": "api", "retry_after": 30}`},
		"a preflight that a rule is for": {method: "OPTIONS", path: "/usual", from: "192.0.2.1", header: preflight, asked: 2,
			fields: []string{"X-Rule"}, want: `420||{`},
		"gRPC-Web": {method: "POST", path: "/page", from: "192.0.2.1", header: "Content-Type: application/grpc-web; Origin: https://app.example.com", asked: 2,
			fields: []string{"Content-Type", "Access-Control-Allow-Origin", "X-Wait"}, want: "200|application/grpc-web|https://app.example.com|60|\x80"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), ownAnswers), httplimit.Options{})
				var rec *httptest.ResponseRecorder
				for range c.asked {
					r := requestOf(c.method, c.path, c.from+":4711", strings.Split(c.header, "; ")...)
					if c.body != "" {
						r.Body, r.ContentLength = io.NopCloser(strings.NewReader(c.body)), -1
					}
					rec = recorded(h, r)
				}
				got := fmt.Sprint(rec.Code)
				for _, field := range c.fields {
					got += "|" + strings.Join(rec.Header()[field], ",")
				}
				if got += "|" + rec.Body.String(); !strings.HasPrefix(got, c.want) {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
			})
		})
	}
}

// TestHidden: no dialect, body or detail names a rule that clients are not told of, and other
// rules are still shown.
func TestHidden(t *testing.T) {
	const text = `{"rules": [
		{"name": "secret", "key": ["ip"], "limits": ["1/1m", "5/1h"], "fields": "hide", "denied": {"headers": {"X-Rule": "rule={rule}"}}},
		{"name": "open", "key": ["ip"], "limits": ["9/1m"]}, {"name": "wide", "key": ["ip"], "limits": ["70/1m"]}]}`
	for _, name := range httplimit.DialectNames() {
		synctest.Test(t, func(t *testing.T) {
			dialect, err := httplimit.ParseDialect(name)
			if err != nil {
				t.Fatal(err)
			}
			var violated []string
			h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), text), httplimit.Options{Dialect: dialect, OnDecision: func(_ *http.Request, o httplimit.Outcome) { violated = o.Violated }})
			for i := range 2 {
				for _, kind := range []string{"Accept: text/plain", "Accept: application/json", "Content-Type: application/grpc", "Content-Type: application/grpc-web", "Connect-Protocol-Version: 1"} {
					rec := recorded(h, requestOf("POST", "/", "192.0.2.1:4711", kind))
					all := fmt.Sprint(rec.Header(), rec.Body)
					if strings.Contains(all, "secret") || i > 0 && rec.Header().Get("X-Rule") != "rule=" {
						t.Errorf("%s, %s: %s", name, kind, all)
					}
					if remaining := rec.Header().Get("Ratelimit") + rec.Header().Get("Ratelimit-Remaining") + rec.Header().Get("X-Ratelimit-Remaining"); name != "none" && remaining != "8" && remaining != `"open";r=8;t=54` && remaining != `"open";r=8;t=7` {
						t.Errorf("%s, %s: remaining %s", name, kind, remaining)
					}
				}
			}
			if !slices.ContainsFunc(violated, func(label string) bool { return strings.HasPrefix(label, "secret/") }) {
				t.Errorf("%s: hooks are told of %q", name, violated)
			}
		})
	}
}

// FuzzDenied: no text of a client is in the answer, but for a whole Origin that is allowed,
// and JSON stays JSON.
func FuzzDenied(f *testing.F) {
	f.Add("/secret", "https://a.example", "192.0.2.1")
	f.Add("/page", "https://a.example\r\nSet-Cookie: a=b", "{rule}")
	f.Add("/{retry_after}", "null", "\"}")
	f.Fuzz(func(t *testing.T, path, origin, accept string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path, r.RemoteAddr = path, "203.0.113.7:4711"
		r.Header["Origin"], r.Header["Accept"] = []string{origin}, []string{accept}
		rec := recorded(ruled(t, policyOf(t, memstore.New(memstore.Options{}), ownAnswers), httplimit.Options{}), r)
		if rec.Code == http.StatusBadRequest {
			return
		}
		if body := rec.Body.String(); rec.Code != http.StatusForbidden || body != `{"error": "slow down", "rule": "ban", "retry_after": null}` || !json.Valid([]byte(body)) {
			t.Errorf("%d %s", rec.Code, body)
		}
		if allowed := rec.Header().Get("Access-Control-Allow-Origin"); allowed != "" && (allowed != origin || strings.ContainsFunc(allowed, func(c rune) bool { return c <= ' ' || c > '~' })) {
			t.Errorf("allowed %q of %q", allowed, origin)
		}
	})
}
