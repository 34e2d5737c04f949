package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/policy"
)

func TestByRule(t *testing.T) {
	entry := func(rule, action string, denied, shadow bool) policy.RuleResult {
		return policy.RuleResult{RuleLimit: &policy.RuleLimit{Rule: rule, Action: action, Shadow: shadow}, Denied: denied}
	}
	for _, test := range []struct {
		name  string
		rules []policy.RuleResult
		want  string
	}{
		{"no rule", nil, ""},
		{"allowed", []policy.RuleResult{entry("a", "", false, false)}, "0 a allowed"},
		{"the second of two limits denied", []policy.RuleResult{
			entry("a", "", false, false), entry("a", "", true, false), entry("b", "", false, false),
		}, "1 a denied; 2 b allowed"},
		{"the first that denied", []policy.RuleResult{
			entry("a", "", true, false), entry("a", "", true, false), entry("a", "", false, false),
		}, "0 a denied"},
		{"a block", []policy.RuleResult{entry("a", "block", true, false)}, "0 a blocked"},
		{"a missing key", []policy.RuleResult{entry("a", "missing", true, false)}, "0 a blocked"},
		{"unlimited", []policy.RuleResult{entry("a", "unlimited", false, false)}, "0 a allowed"},
		{"a block in shadow", []policy.RuleResult{entry("a", "block", true, true)}, "0 a shadow_denied"},
		{"shadow", []policy.RuleResult{
			entry("a", "", true, true), entry("b", "", false, true), entry("c", "", false, false), entry("c", "", true, false),
		}, "0 a shadow_denied; 1 b allowed; 3 c denied"},
	} {
		r := policy.Result{Rules: test.rules}
		var got []string
		for i, e := range r.ByRule {
			got = append(got, fmt.Sprint(i, " ", e.Rule, " ", e.Verdict()))
		}
		if got := strings.Join(got, "; "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		for range r.ByRule { // breaking out of the loop is allowed
			break
		}
	}
}
