package httplimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/policy"
)

// TestOverridden sends GET /a%20b/c?q=1 to Example.org with headers from which servers take
// another method, host or path: a header that differs from what rules look at is refused, one
// that says the same passes.
func TestOverridden(t *testing.T) {
	var rules [4]*policy.Rules
	for i, match := range []string{`"host": "b.example"`, `"path": "/x/**"`, `"method": "DELETE"`, `"ip": "192.0.2.1"`} {
		var err error
		if rules[i], err = policy.Parse([]byte(`{"rules": [{"name": "a", "match": {` + match + `}, "key": [], "limits": "1/s"}]}`)); err != nil {
			t.Fatal(err)
		}
	}
	const long = 30_000
	for _, test := range []struct {
		header string // lines, without the blanks behind colons
		want   string // the attribute for which the request is refused
	}{
		{"X-Forwarded-Host:b.example", "host"},
		{"X-Forwarded-Host:example.org", ""},
		{"X-Forwarded-Host:EXAMPLE.ORG.:443", ""},
		{"X-Forwarded-Host:example.org, example.org:8443", ""},
		{"X-Forwarded-Host:example.org, b.example", "host"},
		{"X-Forwarded-Host:b.example, example.org", "host"},
		{"X-Forwarded-Host:example.org|X-Forwarded-Host:b.example", "host"},
		{"X-Forwarded-Host:", "host"},
		{"X-Forwarded-Host:example.org,", "host"},
		{"X-Forwarded-Host:a@example.org", "host"},
		{"X_forwarded_host:b.example", "host"},
		{"X.Forwarded-Host:b.example", "host"},
		{"X-Forwarded-Hosts:b.example", ""},
		{"X-Forwarded-Server:proxy-1", "host"},
		{"X-Forwarded-Server:proxy-1|X-Forwarded-Host:example.org", ""}, // servers prefer X-Forwarded-Host
		{"X_forwarded_server:proxy-1|X-Forwarded-Host:example.org", "host"},
		{"X-Original-Host:b.example", "host"},
		{"X-Host:b.example", "host"},
		{"Forwarded:for=192.0.2.7;host=example.org;proto=https, for=10.0.0.1;Host=\"example.org:443\"", ""},
		{"Forwarded:for=192.0.2.7;proto=https;by=host", ""},
		{"Forwarded:host=b.example", "host"},
		{"Forwarded:for=a, for=b; HOST = \"b.example\"", "host"},
		{"Forwarded:host=example.org, host=b.example", "host"},
		{"Forwarded:for=\"a;host=b.example;b\"", "host"}, // servers that do not know quotes read b.example
		{"Forwarded:\"host\"=b.example", "host"},
		{"Forwarded:\"ho\\st\"=b.example", "host"}, // Symfony reads b.example
		{"Forwarded:host=", "host"},
		{"Forwarded:" + strings.Repeat("host=", long/5), "host"},
		{"Forwarded:" + strings.Repeat("host", long/4) + strings.Repeat(" ", long), ""},

		{"X-Original-Url:/x/y", "path"},
		{"X-Original-Url:/a%20b/c?q=1", ""},
		{"X-Original-Url:/a b/c?q=1", "path"},
		{"X-Original-Url:/a%20b/c", "path"},
		{"X-Original-Url:https://example.org:443/a%20b/c?q=1", ""}, // as ingress-nginx sends it
		{"X-Original-Url:https://b.example/a%20b/c?q=1", "path"},
		{"X-Original-Url:https://example.org/x/y", "path"},
		{"X-Rewrite-Url:/x/y", "path"},
		{"X-Rewrite_url:/x/y", "path"},
		{"Script_name:/a%20b", "path"},
		{"X-Forwarded-Prefix:/api", ""}, // a proxy has cut this prefix off
		{"X-Forwarded-Prefix:/", ""},
		{"X-Forwarded-Prefix:/api, /a%20b/", "path"},
		{"X-Forwarded-Prefix:/a b", "path"},
		{"X-Forwarded-Prefix:a", "path"},
		{"X-Script-Name:/a%20b", "path"},

		{"X-Http-Method-Override:DELETE", "method"},
		{"X-Http-Method-Override:get", ""},
		{"X-Http-Method-Override:GET|X-Http-Method-Override:DELETE", "method"},
		{"X-Http-Method:MERGE", "method"},
		{"X-Method-Override:DELETE", "method"},
		{"X_http_method_override:DELETE", "method"},
	} {
		for i, attribute := range []string{"host", "path", "method", "ip"} {
			r := httptest.NewRequest(http.MethodGet, "/a%20b/c?q=1", nil)
			r.Host = "Example.org"
			for line := range strings.SplitSeq(test.header, "|") {
				name, value, _ := strings.Cut(line, ":")
				r.Header[name] = append(r.Header[name], value)
			}
			var a httplimit.Ambiguous
			var fault *policy.RequestError
			errors.As(a.Check(rules[i], r), &fault)
			switch {
			case attribute == test.want && (fault == nil || fault.Attribute != attribute):
				t.Errorf("%.80s: %v, want a fault of %s", test.header, fault, attribute)
			case attribute != test.want && fault != nil:
				t.Errorf("%.80s, where rules look at %s alone: %v", test.header, attribute, fault)
			}
		}
	}
}
