package policy_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

const customerRules = `{"rules": [
	{"name": "api", "match": {"path": "/api/**"}, "key": ["header.x-api-key"], "tiers": {"by": "jwt.plan", "default": "free", "plans": {"free": "2/h", "staff": {"unlimited": true}}}},
	{"name": "site", "key": ["ip"], "limits": ["3/h"]}
]}`

func customerPolicy(t testing.TB, rules string) *policy.Policy {
	t.Helper()
	p := made.Policy(t, memstore.New(memstore.Options{Now: func() int64 { return 1e18 }}), made.Rules(t, rules), policy.Options{})
	t.Cleanup(p.Close)
	return p
}

// passUntilDenied asks until it is denied, at most 50 times.
func passUntilDenied(t testing.TB, p *policy.Policy, attrs policy.Map) (n int, last policy.Result) {
	t.Helper()
	for ; n < 50; n++ {
		if err := p.Decide(t.Context(), attrs, 1, &last); err != nil {
			t.Fatal(err)
		}
		if !last.Decision.Allowed {
			break
		}
	}
	return n, last
}

func limits(t testing.TB, texts ...string) (o policy.Override) {
	t.Helper()
	for _, text := range texts {
		l := made.Limit(t, text)
		o.Limits = append(o.Limits, l)
	}
	return o
}

func TestOverrides(t *testing.T) {
	tests := []struct {
		name      string
		rule, key string
		o         policy.Override
		attrs     policy.Map
		want      int
		denied    string
	}{
		{"the rule's own", "site", "192.0.2.8", policy.Override{Block: true}, policy.Map{"ip": "192.0.2.7"}, 3, "3/1h"},
		{"more", "site", "192.0.2.7", limits(t, "5/h"), policy.Map{"ip": "192.0.2.7"}, 5, "5/1h"},
		{"two limits", "site", "192.0.2.7", limits(t, "9/h", "4/d"), policy.Map{"ip": "192.0.2.7"}, 4, "4/24h"},
		{"block", "site", "192.0.2.7", policy.Override{Block: true}, policy.Map{"ip": "192.0.2.7"}, 0, "block"},
		{"unlimited", "site", "192.0.2.7", policy.Override{Unlimited: true}, policy.Map{"ip": "192.0.2.7"}, 50, ""},
		{"in place of a tier", "api", "acme", limits(t, "1/h"), policy.Map{"path": "/api/x", "header.x-api-key": "acme", "jwt.plan": "staff", "ip": "192.0.2.1"}, 1, "1/1h"},
		{"another rule's", "other", "192.0.2.7", policy.Override{Block: true}, policy.Map{"ip": "192.0.2.7"}, 3, "3/1h"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := customerPolicy(t, customerRules)
			if err := p.SetOverride(test.rule, test.key, test.o); err != nil {
				t.Fatal(err)
			}
			n, last := passUntilDenied(t, p, test.attrs)
			if n != test.want {
				t.Fatalf("%d passed, want %d", n, test.want)
			}
			if test.denied != "" && last.Rules[last.Tightest].Text != test.denied {
				t.Errorf("denied by %q, want %q", last.Rules[last.Tightest].Text, test.denied)
			}
		})
	}
}

// TestOverrideEnds takes an override away, and reloads the rules under it.
func TestOverrideEnds(t *testing.T) {
	p := customerPolicy(t, customerRules)
	block := policy.Override{Block: true}
	replace := func(key string) error {
		r := p.ReplaceOverrides()
		err := r.Set("site", key, block)
		return errors.Join(err, r.Commit())
	}
	reload := func(rules string) (err error) {
		p, err = p.Reload(made.Rules(t, rules))
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
		want bool
	}{
		{"block", func() error { return p.SetOverride("site", "192.0.2.7", block) }, false},
		{"taken away", func() error { return p.SetOverride("site", "192.0.2.7", policy.Override{}) }, true},
		{"a set without it", func() error { return replace("192.0.2.9") }, true},
		{"a set with it", func() error { return replace("192.0.2.7") }, false},
		{"its rule is gone", func() error { return reload(`{"rules": [{"name": "new", "key": ["ip"], "limits": ["3/h"]}]}`) }, true},
		{"its rule is back", func() error { return reload(customerRules) }, false},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if r := peek(t, p, policy.Map{"ip": "192.0.2.7"}); r.Decision.Allowed != step.want {
			t.Errorf("%s: allowed %v", step.what, r.Decision.Allowed)
		}
	}
}

// TestOverridesRecover fills the bound on different limits, and then changes what
// customers have: limits that no customer has any more make room.
func TestOverridesRecover(t *testing.T) {
	p := customerPolicy(t, customerRules)
	at := func(i int) policy.Override { return limits(t, fmt.Sprintf("%d/h", i+10)) }
	for i := range policy.MaxPlans {
		if err := p.SetOverride("other", strconv.Itoa(i), at(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.SetOverride("site", "192.0.2.7", limits(t, "7/h")); err == nil {
		t.Fatal("one more than there may be")
	}
	if err := p.SetOverride("site", "x", policy.Override{Block: true, Unlimited: true}); err == nil {
		t.Error("block and unlimited at once")
	}
	if err := p.SetOverride("other", "5", policy.Override{}); err != nil {
		t.Fatal(err)
	}
	if err := p.SetOverride("site", "192.0.2.7", limits(t, "7/h")); err != nil {
		t.Fatal(err)
	}
	if n, _ := passUntilDenied(t, p, policy.Map{"ip": "192.0.2.7"}); n != 7 {
		t.Errorf("%d passed", n)
	}
	customers, different, _ := p.Overrides()
	if customers != policy.MaxPlans || different != policy.MaxPlans {
		t.Errorf("%d customers, %d different limits", customers, different)
	}
}

// TestOverridesInUse changes overrides and rules beside requests: each decision
// is by one of the two limits that were in force.
func TestOverridesInUse(t *testing.T) {
	p := customerPolicy(t, customerRules)
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		all.Go(func() {
			var r policy.Result
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ip := strconv.Itoa(i % 100)
				if err := p.Decide(t.Context(), policy.Map{"ip": "192.0.2." + ip}, 1, &r); err != nil {
					t.Error(err)
					return
				}
				if text := r.Rules[0].Text; text != "3/1h" && text != "7/1h" {
					t.Errorf("decided by %q", text)
					return
				}
			}
		})
	}
	seven := limits(t, "7/h")
	for i := range 20_000 {
		o := policy.Override{}
		if i%3 > 0 {
			o = seven
		}
		if err := p.SetOverride("site", "192.0.2."+strconv.Itoa(i%100), o); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	all.Wait()
}
