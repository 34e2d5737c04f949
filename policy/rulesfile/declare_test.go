package rulesfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// TestHints: an attribute that nobody declares may be a list in quotes, or the status of a response.
func TestHints(t *testing.T) {
	for rule, want := range map[string]string{
		`"key": "[ip]"`: "a list has no quotes: [ip]",
		`"key": ["ip"], "match": {"status": "401"}`: "count: {status: 401} counts the responses of a status",
	} {
		rules, err := rulesfile.Parse([]byte(`{"rules": [{"name": "a", ` + rule + `, "limits": ["1/s"]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := rules.Warnings(); len(got) == 0 || !strings.Contains(got[0].Hint, want) {
			t.Errorf("%v, want %q", got, want)
		}
	}
}

// TestUndeclared: an attribute that no HTTP request has and the file does not declare is
// refused where all requests are of HTTP, else reported once, with the name that may have
// been meant.
func TestUndeclared(t *testing.T) {
	for _, c := range []struct {
		what, attributes, rule string
		want                   []string // line:column, path and hint, in part
	}{
		{"all of HTTP", "", `"match": {"method": "POST", "path": "/x", "host": "h", "header.a": "b", "query.q": "c", "cookie.c": "d"}, "key": ["ip"]`, nil},
		{"a condition", "", `"match": {"methd": "POST"}, "key": ["ip"]`, []string{`rules[0].match: no request here can have the attribute "methd"; did you mean "method"?`}},
		{"one to unless", "", `"unless": {"hots": "x"}, "key": ["ip"]`, []string{`rules[0].unless: no request here can have the attribute "hots"`}},
		{"a key", "", `"key": ["remote_addr"]`, []string{`rules[0].key[0]: no request here can have the attribute "remote_addr"; did you mean "ip"?`}},
		{"a header", "", `"key": ["heder.x-api-key"]`, []string{`did you mean "header.x-api-key"?`}},
		{"a cost", "", `"key": ["ip"], "cost": {"attribute": "tokens"}`, []string{`rules[0].cost.attribute: no request here can have the attribute "tokens"`}},
		{"a tier", "", `"key": ["ip"], "tiers": {"by": "jwt.plan", "plans": {"pro": "9/s"}}`, []string{`rules[0].tiers.by: no request here can have the attribute "jwt.plan"`}},
		{"an override", "", `"key": ["ip"], "overrides": [{"when": {"jwt.sub": "x"}, "limits": ["9/s"]}]`, []string{`the attribute "jwt.sub"`}},
		{"once", "", `"match": {"jwt.a": "x"}, "key": ["jwt.a", "jwt.b"]`, []string{`the attribute "jwt.a"`, `the attribute "jwt.b"`}},
		{"like one that is", `"attributes": "jwt.plan", `, `"match": {"jwt.pln": "x"}, "key": []`, []string{`did you mean "jwt.plan"?`}},
	} {
		rules, err := rulesfile.Parse([]byte(`{` + c.attributes + `"rules": [{"name": "a", ` + c.rule + `, "limits": ["1/s"]}]}`))
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		got := rules.Refused(request.Middleware)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", c.what, got)
			continue
		}
		reported := 0
		for _, w := range rules.Warnings() {
			if strings.Contains(w.Reason, "is not declared") {
				reported++
			}
		}
		for i, e := range got {
			if !strings.Contains(e.Error(), c.want[i]) || e.Line != 1 || e.Column < 20 || reported != len(got) {
				t.Errorf("%s: %v, %d warnings; want %s", c.what, e, reported, c.want[i])
			}
		}
	}
	for _, bad := range []string{`{"rules": [], "attributes": [7]}`, `{"rules": [], "attributes": ["a b"]}`, `{"rules": [], "attributes": ["Method"]}`, `{"rules": [], "attributes": {}}`} {
		if _, err := rulesfile.Parse([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestRefused: rules are refused where no request can have what they look at. A declaration
// does not help interfaces that cannot give declared attributes.
func TestRefused(t *testing.T) {
	const (
		askers = "/v1, Envoy's protocol, RESP"
		served = request.Auth | request.Check
		with   = ", package httplimit with Options.Attribute, package grpclimit with Options.Attribute"
	)
	for _, c := range []struct {
		what, rule string
		by         request.Interfaces
		want       string // the hint of the one error; "" for none
	}{
		{"HTTP", `"key": ["ip", "header.x", "query.q", "cookie.c", "body./m"]`, request.Proxy, ""},
		{"a claim", `"key": ["jwt.sub"]`, request.Proxy, "it can come by " + askers + with},
		{"a claim for the middleware", `"key": ["jwt.sub"]`, request.Middleware, "it can come by " + askers + with},
		{"a claim of a program", `"key": ["jwt.sub"]`, request.Program, ""},
		{"a claim of a caller", `"key": ["jwt.sub"]`, served, ""},
		{"one of a program that is not declared", `"key": ["user"]`, request.Program, "what Options.Attribute gives is declared: attributes: [user]"},
		{"a body where it is not seen", `"key": ["body./m"]`, request.Serve, "it can come by stint proxy, package httplimit"},
		{"a body of a call", `"key": ["body./m"]`, request.Interceptor, "it can come by stint proxy, package httplimit"},
		{"a call", `"match": {"grpc.service": "s"}, "key": ["grpc.method"], "unless": {"grpc.message": true}`, request.Interceptor, ""},
		{"a call over HTTP", `"key": ["grpc.method"]`, request.Middleware, "it can come by " + askers + ", package grpclimit"},
		{"a cookie of a call", `"key": ["cookie.c"]`, request.Service, "it can come by stint proxy, /auth, " + askers + ", package httplimit"},
		{"a response that is not seen", `"key": ["ip"], "count": {"status": 401}`, request.Serve, "stint proxy, Caddy and the middleware of Go see it: put the rule into a file for them; callers of /v1 need no count or cost here: they /v1/reserve each try, and /v1/settle it at 0 if it shall not count"},
		{"the body of a response to a call", `"key": ["ip"], "cost": {"response": "bytes", "reserve": 1}`, request.Interceptor, "stint proxy, Caddy and the middleware of Go see it: put the rule into a file for them"},
		{"a response to a call", `"key": ["ip"], "count": {"status": 401}, "cost": {"response": "header.x", "reserve": 1}`, request.Interceptor, ""},
		{"a response", `"key": ["ip"], "count": {"status": 401}`, request.Middleware, ""},
	} {
		rules, err := rulesfile.Parse([]byte(`{"attributes": ["jwt.sub"], "rules": [{"name": "a", ` + c.rule + `, "limits": ["1/s"]}]}`))
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		got := rules.Refused(c.by)
		if len(got) == 0 && c.want == "" {
			continue
		}
		if len(got) != 1 || got[0].Hint != c.want || got[0].Line != 1 || got[0].Column < 20 {
			t.Errorf("%s: %v; want the hint %q", c.what, got, c.want)
		}
	}
	rules, err := rulesfile.Parse([]byte(`{"rules": [{"name": "a", "key": ["grpc.method"], "limits": ["1/s"]}]}`))
	if err != nil || len(rules.Warnings()) != 0 {
		t.Errorf("what gRPC calls have: %v, %v; want no warning", err, rules.Warnings())
	}
}

// TestRefusedOfMany: what is said of each of many declared attributes costs the same.
func TestRefusedOfMany(t *testing.T) {
	allocations := func(n int) float64 {
		var names, rules []string
		for i := range n {
			name := fmt.Sprintf("route-%04d", i)
			names = append(names, `"`+name+`"`)
			rules = append(rules, fmt.Sprintf(`{"name": %q, "match": {"path": "/%[1]s"}, "key": [%[1]q], "limits": ["1/s"]}`, name))
		}
		f, err := rulesfile.Parse([]byte(`{"attributes": [` + strings.Join(names, ", ") + `], "rules": [` + strings.Join(rules, ", ") + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Refused(request.Proxy); len(got) != n {
			t.Fatalf("%d of %d", len(got), n)
		}
		return testing.AllocsPerRun(1, func() { f.Refused(request.Proxy) })
	}
	if few, many := allocations(50), allocations(500); many > 11*few {
		t.Errorf("%v allocations for 50 attributes, %v for 500", few, many)
	}
}
