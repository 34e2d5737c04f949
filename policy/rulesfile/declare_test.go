package rulesfile_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/policy/rulesfile"
)

// TestUndeclared checks attributes that no HTTP request has: they are declared, or
// reported once, with what may have been meant.
func TestUndeclared(t *testing.T) {
	for _, c := range []struct {
		what, attributes, rule string
		want                   []string // line:column, path and hint, in part
	}{
		{"all of HTTP", "", `"match": {"method": "POST", "path": "/x", "host": "h", "header.a": "b", "query.q": "c", "cookie.c": "d"}, "key": ["ip"]`, nil},
		{"a condition", "", `"match": {"methd": "POST"}, "key": ["ip"]`, []string{`rules[0].match: the attribute "methd" is not declared, and no HTTP request has one of that name; did you mean "method"?`}},
		{"one to unless", "", `"unless": {"hots": "x"}, "key": ["ip"]`, []string{`rules[0].unless: the attribute "hots"`}},
		{"a key", "", `"key": ["remote_addr"]`, []string{`rules[0].key[0]: the attribute "remote_addr" is not declared, and no HTTP request has one of that name; did you mean "ip"? what the caller gives is declared: attributes: [remote_addr]`}},
		{"a header", "", `"key": ["heder.x-api-key"]`, []string{`did you mean "header.x-api-key"?`}},
		{"a cost", "", `"key": ["ip"], "cost": {"attribute": "tokens"}`, []string{`rules[0].cost.attribute: the attribute "tokens"`}},
		{"a tier", "", `"key": ["ip"], "tiers": {"by": "jwt.plan", "plans": {"pro": "9/s"}}`, []string{`rules[0].tiers.by: the attribute "jwt.plan"`}},
		{"an override", "", `"key": ["ip"], "overrides": [{"when": {"jwt.sub": "x"}, "limits": ["9/s"]}]`, []string{`the attribute "jwt.sub"`}},
		{"once", "", `"match": {"jwt.a": "x"}, "key": ["jwt.a", "jwt.b"]`, []string{`the attribute "jwt.a"`, `the attribute "jwt.b"`}},
		{"declared", `"attributes": ["jwt.a", "jwt.b"], `, `"match": {"jwt.a": "x"}, "key": ["jwt.a", "jwt.b"]`, nil},
		{"like one that is", `"attributes": "jwt.plan", `, `"match": {"jwt.pln": "x"}, "key": []`, []string{`did you mean "jwt.plan"?`}},
	} {
		rules, err := rulesfile.Parse([]byte(`{` + c.attributes + `"rules": [{"name": "a", ` + c.rule + `, "limits": ["1/s"]}]}`))
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		got := rules.Undeclared()
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
	rules, err := rulesfile.Parse([]byte(`{"rules": [{"name": "a", "match": {"grpc.service": "s"}, "key": ["grpc.method"], "limits": ["1/s"]}]}`))
	if err != nil || len(rules.Undeclared()) != 2 || len(rules.Warnings()) != 0 {
		t.Errorf("what gRPC calls have: %v, %v, %v: want no warning, but an error where there is HTTP alone", err, rules.Undeclared(), rules.Warnings())
	}
	for _, bad := range []string{`{"rules": [], "attributes": [7]}`, `{"rules": [], "attributes": ["a b"]}`, `{"rules": [], "attributes": ["Method"]}`, `{"rules": [], "attributes": {}}`} {
		if _, err := rulesfile.Parse([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
