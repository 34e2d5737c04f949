package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// manyRules returns n rules, each for a path and host of its own, and the last
// with as many overrides.
func manyRules(n, overrides int) []byte {
	var b strings.Builder
	b.WriteString(`{"rules": [`)
	for i := range n {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, `{"name": "rule%d", "match": {"method": ["GET", "POST"], "path": "/service%d/v1/**"}, "key": ["header.x-api-key"], "limits": ["1000000/s"]`, i, i)
		if i == n-1 && overrides > 0 {
			b.WriteString(`, "overrides": [`)
			for k := range overrides {
				if k > 0 {
					b.WriteString(",\n")
				}
				fmt.Fprintf(&b, `{"when": {"header.x-api-key": "customer-%d"}, "limits": ["%d00000/s"]}`, k, k%7+1)
			}
			b.WriteString(`]`)
		}
		b.WriteString(`}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct{ rules, overrides int }{
		{1, 0}, {1000, 0}, {5000, 0}, {1, 100_000}, {5000, 100_000},
	} {
		b.Run(fmt.Sprintf("rules=%d/overrides=%d", c.rules, c.overrides), func(b *testing.B) {
			rules := made.Rules(b, string(manyRules(c.rules, c.overrides)))
			p := made.Policy(b, memstore.New(memstore.Options{}), rules, policy.Options{})
			attrs := request{
				method: "POST", host: "api.example.com", ip: "192.0.2.7",
				path: fmt.Sprintf("/service%d/v1/items/7", c.rules-1), key: "customer-77",
			}
			benchmark(b, p, &attrs)
		})
	}
}

// request gives attributes without a map, as a server does.
type request struct{ method, host, path, ip, key string }

func (r *request) Attribute(name string) (string, bool) {
	switch name {
	case "method":
		return r.method, true
	case "host":
		return r.host, true
	case "path":
		return r.path, true
	case "ip":
		return r.ip, r.ip != ""
	case "header.x-api-key":
		return r.key, r.key != ""
	}
	return "", false
}

func benchmark(b *testing.B, p *policy.Policy, attrs policy.Attributes) {
	ctx := context.Background()
	var r policy.Result
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Decide(ctx, attrs, 1, &r); err != nil || len(r.Rules) == 0 && r.Matched {
			b.Fatal(err, r.Rules)
		}
	}
	b.ReportMetric(float64(len(r.Rules)), "layers")
}
