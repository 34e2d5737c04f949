package policy_test

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	by "github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// TestNotGiven asks by an interface that has no claims. A request that a rule by a claim may
// hold is refused; any other request is decided by the other rules.
func TestNotGiven(t *testing.T) {
	t.Run("given by two together", givenTogether)

	const other = `, {"name": "other", "key": ["ip"], "limits": ["1 per hour"]}`
	for _, c := range []struct {
		what, rules string
		refused     string // the rule and its attribute; "" if the other rule holds the request
		passes      bool   // neither rule holds the request
	}{
		{"a key", `{"name": "a", "key": ["jwt.sub"], "limits": ["9/s"]}` + other, "a jwt.sub", false},
		{"a key that may be missing", `{"name": "a", "key": ["jwt.sub"], "on_missing": "skip", "limits": ["9/s"]}` + other, "a jwt.sub", false},
		{"a part of a key", `{"name": "a", "key": ["ip", "jwt.sub"], "limits": ["9/s"]}` + other, "a jwt.sub", false},
		{"a tier", `{"name": "a", "key": ["ip"], "tiers": {"by": "jwt.plan", "default": "x", "plans": {"x": "9/s"}}}` + other, "a jwt.plan", false},
		{"a cost", `{"name": "a", "key": ["ip"], "limits": ["9/s"], "cost": {"attribute": "jwt.n"}}` + other, "a jwt.n", false},
		{"a condition", `{"name": "a", "match": {"jwt.plan": "pro"}, "key": ["ip"], "limits": ["9/s"]}` + other, "a jwt.plan", false},
		{"a condition of several", `{"name": "a", "match": {"path": "/a", "jwt.plan": "pro"}, "key": ["ip"], "limits": ["9/s"]}` + other, "a jwt.plan", false},
		{"one of two", `{"name": "a", "match": [{"path": "/b"}, {"jwt.plan": "pro"}], "key": ["ip"], "limits": ["9/s"]}` + other, "a jwt.plan", false},
		{"an exception", `{"name": "a", "unless": {"jwt.plan": "pro"}, "key": ["ip"], "limits": ["9/s"]}` + other, "a jwt.plan", false},
		{"an override", `{"name": "a", "key": ["ip"], "limits": ["9/s"], "overrides": [{"when": {"jwt.sub": "x"}, "limits": ["1/s"]}]}` + other, "a jwt.sub", false},
		{"another path", `{"name": "a", "match": {"path": "/b"}, "key": ["jwt.sub"], "limits": ["9/s"]}` + other, "", false},
		{"another path beside a claim", `{"name": "a", "match": {"path": "/b", "jwt.plan": "pro"}, "key": ["ip"], "limits": ["9/s"]}` + other, "", false},
		{"an exception that holds", `{"name": "a", "unless": {"path": "/a"}, "key": ["jwt.sub"], "limits": ["9/s"]}` + other, "", false},
		{"of requests without a path", `{"name": "a", "match": {"path": false, "key": true}, "key": ["key"], "limits": ["9/s"]}` + other, "", false},
		{"in shadow", `{"name": "a", "key": ["jwt.sub"], "limits": ["9/s"], "shadow": true}` + other, "", false},
		{"behind a rule that ends", `{"name": "open", "match": {"path": "/a"}, "unlimited": true}, {"name": "a", "key": ["jwt.sub"], "limits": ["9/s"]}`, "", true},
		{"behind a rule that ends elsewhere", `{"name": "open", "match": {"path": "/b"}, "unlimited": true}, {"name": "a", "key": ["jwt.sub"], "limits": ["9/s"]}`, "a jwt.sub", false},
		{"behind the other", `{"name": "b", "key": ["ip"], "limits": ["1 per hour"]}, {"name": "a", "key": ["jwt.sub"], "limits": ["9/s"]}`, "a jwt.sub", false},
	} {
		rules := made.Rules(t, `{"rules": [`+c.rules+`]}`)
		store := memstore.New(memstore.Options{})
		p := made.Policy(t, store, rules, policy.Options{})
		ask := func(door by.Interfaces) (bool, error) {
			q := &by.HTTP{Method: "GET", URL: &url.URL{Path: "/a"}, Header: http.Header{}, By: door}
			var r policy.Result
			err := p.Decide(t.Context(), q, 1, &r)
			return r.Decision.Allowed, err
		}
		for i := range 2 { // a refusal has charged nothing
			allowed, err := ask(by.Auth)
			var lacks *policy.NotGivenError
			switch errors.As(err, &lacks); {
			case c.refused == "" && (err != nil || allowed != (i == 0 || c.passes)):
				t.Errorf("%s: request %d allowed %v, %v", c.what, i, allowed, err)
			case c.refused != "" && (lacks == nil || lacks.Rule+" "+lacks.Attribute != c.refused):
				t.Errorf("%s: %v; want a refusal by %s", c.what, err, c.refused)
			}
		}
		if _, err := ask(by.Check); err != nil {
			t.Errorf("%s, by one that can give it: %v", c.what, err)
		}
		_ = store.Close()
	}
}

// givenTogether asks by middleware that has both a function for declared attributes, and
// claims.
func givenTogether(t *testing.T) {
	p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"attributes": ["shop"], "jwt": {"jwks": "https://id.example.com"},
		"rules": [{"name": "a", "key": ["jwt.sub", "shop"], "limits": ["1 per hour"]}]}`), policy.Options{})
	q := &by.HTTP{By: by.Program | by.Proxy, More: func(name string) (string, bool) { return name, true }}
	var r policy.Result
	if err := p.Decide(t.Context(), q, 1, &r); err != nil || r.Key(0) == "" {
		t.Errorf("%v, key %q", err, r.Key(0))
	}
}
