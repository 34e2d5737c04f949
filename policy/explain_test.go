package policy_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/policy"
)

// TestExplain is a transcript: attributes, ----, what the rules of
// good_everything.json make of them.
func TestExplain(t *testing.T) {
	data := disk.Read(t, "rulesfile/testdata/good_everything.json")
	rules := made.Rules(t, string(data))
	golden.Play(t, "testdata/explain.txt", "\n\n", func(input string) string {
		attrs := policy.Map{}
		for _, pair := range strings.Fields(input) {
			name, value, _ := strings.Cut(pair, "=")
			attrs[name] = value
		}
		e, err := rules.Explain(attrs)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSuffix(e.String(), "\n")
	})
}

// TestExplainResponse says what is reserved, and where the truth comes from.
func TestExplainResponse(t *testing.T) {
	rules := made.Rules(t, `{"rules": [
		{"name": "a", "key": [], "limits": "9/m", "cost": {"usage": "anthropic", "reserve": 5}},
		{"name": "b", "key": [], "limits": "9/m", "cost": {"response": ["/a", "/b"], "reserve": {"attribute": "body./n", "max": 7}, "missing": 0}},
		{"name": "c", "key": [], "limits": "9/m", "cost": {"response": "header.X-Cost", "reserve": 1}},
		{"name": "d", "key": [], "limits": "9/m", "cost": {"response": "bytes", "reserve": 1}, "count": {"status": ["2xx", 404]}},
		{"name": "e", "key": [], "limits": "9/m", "count": {"status": [401]}}]}`)
	e, err := rules.Explain(policy.Map{"body./n": "30"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `yes a: matches every request
      9/1m
      cost: reserves 5, then charges the response's usage of anthropic, or an estimate without it, if that is more
yes b: matches every request
      9/1m
      cost: reserves 7, then charges the response's /a + /b, or 0 without it
yes c: matches every request
      9/1m
      cost: reserves 1, then charges the response's header.x-cost
yes d: matches every request
      9/1m
      cost: reserves 1, then charges the response's bytes of the body
      counts responses of status 2xx, 404, gives others back
yes e: matches every request
      9/1m
      counts responses of status 401, gives others back
`
	if got := e.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
