package policy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/policy"
)

const modeRule = `{"name": "MODE", "key": ["ip"], "mode": "MODE", "limits": ["2/1h", "3/1h fixed_window"]}`

func ofMode(mode string) string { return strings.ReplaceAll(modeRule, "MODE", mode) }

// A modal store notes in which mode limits are bound.
type modal struct {
	stint.Store
	bound []string
}

func (s *modal) BindMode(mode, name string, limits ...stint.Limit) (stint.Bound, error) {
	for _, l := range limits {
		if l.Algorithm() == meter.FixedWindow && mode == "async" {
			return nil, fmt.Errorf("no %v here", l.Algorithm())
		}
		s.bound = append(s.bound, mode+" "+name+"/"+l.ID())
	}
	return s.Bind(name, limits...)
}

// Check implements [policy.Checker].
func (s *modal) Check(mode string, limits ...stint.Limit) error {
	for _, l := range limits {
		if l.Count() > 1000 {
			return fmt.Errorf("%s: more than fits", l.Name())
		}
	}
	return nil
}

// TestReloadRefused: of rules of which the store would refuse one, none is bound.
func TestReloadRefused(t *testing.T) {
	store := &modal{Store: memstore.New(memstore.Options{})}
	p := made.Policy(t, store, parse(t, ofMode("lease")), policy.Options{})
	defer p.Close()
	store.bound = nil
	_, err := p.Reload(parse(t, strings.ReplaceAll(ofMode("lease"), "2/1h", "4/1h"), strings.ReplaceAll(ofMode("share"), "3/1h", "3000/1h")))
	if err == nil || !strings.Contains(err.Error(), `rule "share"`) || len(store.bound) != 0 {
		t.Errorf("%v, and %v were bound", err, store.bound)
	}
}

// TestModes binds rules of each mode. A ModeStore gets the mode; in memory all modes are
// alike; another store refuses them. The local store knows no modes.
func TestModes(t *testing.T) {
	local := memstore.New(memstore.Options{})
	store := &modal{Store: memstore.New(memstore.Options{})}
	rules := parse(t, ofMode("strict"), ofMode("lease"), ofMode("share"))
	p := made.Policy(t, store, rules, policy.Options{Local: local})
	slices.Sort(store.bound) // together, then one by one
	if got, want := strings.Join(slices.Compact(store.bound), ", "), "lease lease/fixed_window:1h, lease lease/gcra:1h, share share/fixed_window:1h, share share/gcra:1h, strict strict/fixed_window:1h, strict strict/gcra:1h"; got != want {
		t.Errorf("bound %s; want %s", got, want)
	}
	if n := passes(t, p, policy.Map{"ip": "192.0.2.1"}); n != 2 {
		t.Errorf("%d pass rules of three modes, want 2", n)
	}
	if _, err := policy.New(store, parse(t, ofMode("async")), policy.Options{}); err == nil || !strings.Contains(err.Error(), `rule "async": no fixed_window here`) {
		t.Errorf("what the store refuses: %v", err)
	}
	if _, err := policy.New(newBroken(), parse(t, ofMode("lease")), policy.Options{}); err == nil || !strings.Contains(err.Error(), "mode lease") {
		t.Errorf("a store without modes: %v", err)
	}
	for _, mode := range []string{"strict", "lease", "async", "share"} {
		p := newPolicy(t, ofMode(mode))
		if n := passes(t, p, policy.Map{"ip": "192.0.2.1"}); n != 2 {
			t.Errorf("in memory, mode %s: %d pass, want 2", mode, n)
		}
	}
	next, err := p.Reload(parse(t, ofMode("strict"), ofMode("lease"), strings.Replace(ofMode("share"), `"mode": "share"`, `"mode": "strict"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	var r policy.Result
	if err := next.Peek(context.Background(), policy.Map{"ip": "192.0.2.1"}, 1, &r); err != nil || r.Decision.Allowed {
		t.Errorf("another mode forgets what was used: %+v, %v", r.Decision, err)
	}
	if c := next.Rules().Compare(rules); len(c) != 1 || c[0].String() != "rule share: mode share becomes strict" || c[0].Fresh {
		t.Errorf("compared: %v", c)
	}
}
