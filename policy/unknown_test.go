package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	by "github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// A bearer is a request with a token, whose claims may be unknown.
type bearer struct {
	policy.Map
	unknown, asked bool
}

func (b *bearer) Attribute(name string) (string, bool) {
	if !strings.HasPrefix(name, "jwt.") {
		return b.Map.Attribute(name)
	}
	b.asked = true
	if b.unknown {
		return "", false
	}
	return b.Map.Attribute(name)
}

func (b *bearer) Unknown() bool { return b.unknown && b.asked }

// An asked is a request at /auth, which sees no body.
type asked struct{ *bearer }

func (asked) Interface() by.Interfaces { return by.Auth }

// TestUnknown decides requests whose claims cannot be known: a rule that needs a claim goes
// by its on_store_failure. local decides as if the claim were missing, open leaves the rule
// out, closed denies for a second.
func TestUnknown(t *testing.T) {
	const passes, leaves, denies, forgoes = "passes", "is left out", "denies for a second", "denies for good"
	for _, c := range []struct{ rule, local, open, closed string }{
		{`"key": ["jwt.sub"], "limits": ["5/h"]`, passes, leaves, denies},
		{`"key": ["ip", "jwt.sub"], "limits": ["5/h"]`, passes, leaves, denies},
		{`"key": ["jwt.sub"], "limits": ["5/h"], "on_missing": "skip"`, leaves, leaves, denies},
		{`"key": ["jwt.sub"], "limits": ["5/h"], "on_missing": "deny"`, forgoes, leaves, denies},
		{`"key": ["jwt.sub"], "limits": ["5 in flight"]`, passes, leaves, denies},
		{`"key": ["jwt.sub"], "limits": ["5/h"], "shadow": true`, passes, leaves, leaves},
		{`"key": ["ip"], "limits": ["5/h"]`, passes, passes, passes},
		{`"match": {"jwt.plan": "free"}, "key": ["ip"], "limits": ["5/h"]`, leaves, leaves, denies},
		{`"match": {"path": "/a", "jwt.plan": ["free", "x*"]}, "key": ["ip"], "limits": ["5/h"]`, leaves, leaves, denies},
		{`"match": {"path": "/b", "jwt.plan": "free"}, "key": ["ip"], "limits": ["5/h"]`, leaves, leaves, leaves},
		{`"match": {"jwt.sub": true}, "key": ["ip"], "limits": ["5/h"]`, leaves, leaves, denies},
		{`"match": {"jwt.sub": false}, "key": ["ip"], "limits": ["5/h"]`, passes, leaves, denies},
		{`"match": [{"jwt.plan": "free"}, {"path": "/b"}], "key": ["ip"], "limits": ["5/h"]`, leaves, leaves, denies},
		{`"unless": {"jwt.plan": "staff"}, "key": ["ip"], "limits": ["5/h"]`, passes, leaves, denies},
		{`"unless": {"path": "/b", "jwt.plan": "staff"}, "key": ["ip"], "limits": ["5/h"]`, passes, passes, passes},
		{`"key": ["ip"], "tiers": {"by": "jwt.plan", "default": "free", "plans": {"free": "5/h", "pro": "9/h"}}`, passes, leaves, denies},
		{`"key": ["ip"], "limits": ["5/h"], "overrides": [{"when": {"jwt.org": "acme"}, "limits": ["9/h"]}]`, passes, leaves, denies},
		{`"key": ["ip"], "limits": ["5/h"], "cost": {"attribute": "jwt.weight"}`, passes, leaves, denies},
		{`"match": {"jwt.sub": "mallory"}, "block": true`, leaves, leaves, denies},
		{`"match": {"jwt.role": "staff"}, "unlimited": true`, leaves, leaves, leaves},
	} {
		for failure, want := range map[string]string{"local": c.local, "open": c.open, "closed": c.closed, "closed of another": c.closed} {
			failure, asks, _ := strings.Cut(failure, " ")
			p := made.Policy(t, memstore.New(memstore.Options{}), made.Rules(t, `{"jwt": {"jwks": "https://id.example.com"}, "rules": [{"name": "a", `+c.rule+`, "on_store_failure": "`+failure+`"},
				{"name": "z", "match": {"path": "/z"}, "key": ["body./z"], "limits": ["1/h"]}]}`), policy.Options{})
			var attrs policy.Attributes = &bearer{Map: policy.Map{"ip": "192.0.2.7", "path": "/a"}, unknown: true}
			if asks != "" { // rule z is of no interest here, but it is found otherwise
				attrs = asked{attrs.(*bearer)}
			}
			r := policy.Result{WillRelease: true}
			if err := p.Decide(t.Context(), attrs, 1, &r); err != nil {
				t.Fatal(err)
			}
			got := passes
			switch {
			case len(r.Rules) == 0:
				got = leaves
			case !r.Decision.Allowed && r.Decision.RetryAfter == stint.Never:
				got = forgoes
			case !r.Decision.Allowed:
				got = fmt.Sprint("denies for ", r.Decision.RetryAfter, r.Rules[0].Failed)
				if r.Decision.RetryAfter == stint.Wait(time.Second) && r.Rules[0].Failed == policy.FailClosed && r.Rules[0].Denied {
					got = denies
				}
			}
			if got != want {
				t.Errorf("%s, %s: it %s, want: it %s", c.rule, failure, got, want)
			}
		}
	}
}

// TestClaimsLast: a claim is asked for only if all other conditions of its rule hold.
func TestClaimsLast(t *testing.T) {
	p := newPolicy(t,
		`{"name": "a", "match": {"jwt.plan": "free", "path": "/a", "method": "POST"}, "key": ["ip"], "limits": ["5/h"]}`,
		`{"name": "b", "match": {"path": "/b/**"}, "unless": {"jwt.plan": "free", "method": "POST"}, "key": ["ip"], "limits": ["5/h"], "on_store_failure": "closed"}`,
		`{"name": "c", "match": {"jwt.plan": "free", "path": "/c"}, "key": ["ip"], "limits": ["5/h"], "on_store_failure": "closed"}`,
		`{"name": "d", "match": {"path": "/d"}, "key": ["jwt.sub"], "limits": ["5/h"]}`,
		`{"name": "f", "match": {"path": "/f", "jwt.plan": "rare"}, "key": ["ip"], "limits": ["5/h"]}`, // the claim is rarer than the path
		`{"name": "g", "match": {"path": "/f", "jwt.plan": "rarer"}, "key": ["ip"], "limits": ["5/h"]}`,
	)
	for _, c := range []struct {
		method, path string
		want         bool
	}{
		{"POST", "/", false}, {"GET", "/a", false}, {"POST", "/a", true}, {"GET", "/b/x", false}, {"POST", "/b/x", true},
		{"GET", "/c", true}, {"GET", "/d", true}, {"GET", "/e", false}, {"GET", "/f", true},
	} {
		b := &bearer{Map: policy.Map{"ip": "192.0.2.7", "path": c.path, "method": c.method, "jwt.plan": "free"}}
		if err := p.Decide(t.Context(), b, 1, new(policy.Result)); err != nil || b.asked != c.want {
			t.Errorf("%s %s: asked for a claim: %v, want %v; %v", c.method, c.path, b.asked, c.want, err)
		}
	}
}
