package httplimit_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

func rules(t testing.TB, text string) *policy.Rules {
	t.Helper()
	return made.Rules(t, text)
}

func policyOf(t testing.TB, store stint.Store, text string) *policy.Policy {
	t.Helper()
	return made.Policy(t, store, rules(t, text), policy.Options{})
}

func ruled(t testing.TB, p *policy.Policy, o httplimit.Options) http.Handler {
	t.Helper()
	g := sound(t)(httplimit.NewPolicy(p, behind(), o))
	return g(status)
}

const someRules = `{"attributes": ["my.attr"], "rules": [
	{"name": "ban", "match": {"ip": "203.0.113.0/24"}, "block": true},
	{"name": "login", "match": {"method": "POST", "path": "/login"}, "key": ["ip"], "limits": ["2/1m"]},
	{"name": "api", "match": {"path": "/api/**"}, "key": ["header.x-api-key"], "limits": ["3/1h", "5/day in UTC"], "on_missing": "deny"},
	{"name": "trial", "match": {"path": "/login"}, "key": ["ip"], "limits": ["1/1h"], "shadow": true},
	{"name": "mine", "match": {"my.attr": "7"}, "key": ["cookie.s", "query.q"], "limits": ["1/1h"]}
]}`

// TestPolicy plays requests against rules.
func TestPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ruled(t, policyOf(t, memstore.New(memstore.Options{}), someRules), httplimit.Options{
			Attribute: func(r *http.Request, name string) (string, bool) {
				return r.URL.Query().Get("attr"), name == "my.attr"
			},
		})
		api := []string{"X-Api-Key: k1"}
		for i, test := range []struct {
			method, path, peer string
			headers            []string
			want               int
			policy, rateLimit  string
			retry              string
		}{
			{"GET", "/", "192.0.2.7:1", nil, 200, "", "", ""},
			{"GET", "/", "203.0.113.9:1", nil, 403, "", "", ""},
			{"GET", "/", "10.0.0.1:1", []string{"X-Forwarded-For: 203.0.113.9"}, 403, "", "", ""},
			{"GET", "/", "192.0.2.7:1", []string{"X-Forwarded-For: 203.0.113.9"}, 200, "", "", ""},
			{"GET", "/login", "192.0.2.7:1", nil, 200, "", "", ""},
			{"POST", "/login", "192.0.2.7:1", nil, 200, `"login";q=2;w=60`, `"login";r=1;t=30`, ""},
			{"POST", "/x/../login", "192.0.2.7:1", nil, 400, "", "", ""},
			{"POST", "/%6cogin", "192.0.2.7:1", nil, 400, "", "", ""},
			{"POST", "/login/", "192.0.2.7:1", nil, 200, `"login";q=2;w=60`, `"login";r=0;t=60`, ""},
			{"POST", "/login", "192.0.2.7:1", nil, 429, `"login";q=2;w=60`, `"login";r=0;t=30`, "30"},
			{"POST", "/login?x", "[2001:db8::1]:1", nil, 200, `"login";q=2;w=60`, `"login";r=1;t=30`, ""},
			{"POST", "/login", "[2001:db8::2]:1", nil, 200, `"login";q=2;w=60`, `"login";r=0;t=60`, ""},
			{"GET", "/api%2flogin", "192.0.2.7:1", nil, 400, "", "", ""},
			{"GET", "/api/x", "192.0.2.7:1", nil, 403, "", "", ""},
			{"GET", "/api/x", "192.0.2.7:1", api, 200, `q=3;w=3600`, `"api/gcra:1h";r=2;t=2400`, ""},
			{"GET", "/api/x", "192.0.2.8:1", api, 200, `q=5;w=86400`, `"api/gcra:1h";r=1;t=2400`, ""},
			{"GET", "/other?attr=7&q=a", "192.0.2.8:1", []string{"Cookie: s=b"}, 200, `"mine";q=1;w=3600`, `"mine";r=0`, ""},
			{"GET", "/other?attr=7&q=a", "192.0.2.8:1", []string{"Cookie: s=b"}, 429, `"mine";q=1;w=3600`, `"mine";r=0`, "3600"},
			{"GET", "/other?attr=7&q=b", "192.0.2.8:1", []string{"Cookie: s=a"}, 200, `"mine";q=1;w=3600`, `"mine";r=0`, ""},
		} {
			rec := recorded(h, requestOf(test.method, test.path, test.peer, test.headers...))
			got := rec.Header()
			if rec.Code != test.want || !strings.Contains(got.Get("RateLimit-Policy"), test.policy) || !strings.Contains(got.Get("RateLimit"), test.rateLimit) ||
				got.Get("Retry-After") != test.retry || test.policy == "" && got.Get("RateLimit") != "" {
				t.Errorf("request %d, %s %s: %d, %v, %s", i, test.method, test.path, rec.Code, got, rec.Body)
			}
		}
	})
}

// TestPolicyFailure: when the store fails, each rule's on_store_failure decides.
func TestPolicyFailure(t *testing.T) {
	for word, want := range map[string]int{"open": 200, "closed": 503, "local": 200} {
		var reported error
		p := policyOf(t, failingPolicy(errors.New("broken")), `{"rules": [{"name": "a", "key": ["ip"], "limits": ["2/h"], "on_store_failure": "`+word+`"}]}`)
		h := ruled(t, p, httplimit.Options{OnError: func(_ *http.Request, err error) { reported = err }})
		rec := serve(h, "/200")
		if rec.Code != want || reported == nil {
			t.Errorf("%s: %d, %v, reported %v", word, rec.Code, rec.Header(), reported)
		}
	}
}

func failingPolicy(err error) stint.Store { return failing{memstore.New(memstore.Options{}), err} }

// TestNotGiven: rules that look at what the middleware cannot give are refused at the start.
// After a reload, a request that they may hold is answered with 500, FailOpen or not.
func TestNotGiven(t *testing.T) {
	const claims = `{"attributes": ["jwt.sub"], "rules": [{"name": "a", "match": {"path": "/a"}, "key": ["jwt.sub"], "limits": ["1/h"]}]}`
	store := memstore.New(memstore.Options{})
	if _, err := httplimit.NewPolicy(policyOf(t, store, claims), behind(), httplimit.Options{}); err == nil || !strings.Contains(err.Error(), "package httplimit with Options.Attribute") {
		t.Errorf("at the start: %v", err)
	}
	current := policyOf(t, store, `{"rules": []}`)
	var failed error
	guard, err := httplimit.NewPolicyFunc(func() *policy.Policy { return current }, behind(),
		httplimit.Options{FailOpen: true, OnError: func(_ *http.Request, err error) { failed = err }})
	if err != nil {
		t.Fatal(err)
	}
	if current, err = current.Reload(rules(t, claims)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/a": http.StatusInternalServerError, "/b": http.StatusOK} {
		rec := serve(guard(status), path)
		if rec.Code != want || strings.Contains(rec.Body.String(), "jwt") {
			t.Errorf("%s: %d %s; want %d, and nothing about rules", path, rec.Code, rec.Body, want)
		}
	}
	var lacks *policy.NotGivenError
	if !errors.As(failed, &lacks) || lacks.Rule != "a" || lacks.Attribute != "jwt.sub" {
		t.Errorf("OnError: %v", failed)
	}
}
