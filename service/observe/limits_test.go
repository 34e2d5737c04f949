package observe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/observe"
)

// TestLimits has the limits of rules, with their tiers and named overrides, as the rules
// are at each scrape; and of very many a bounded number, and how many are left out.
func TestLimits(t *testing.T) {
	now := made.Rules(t, `{"rules": [
		{"name": "api", "key": ["jwt.org"], "tiers": {"by": "jwt.plan", "default": "free", "plans": {"free": "1/s", "pro": ["10/s burst 20", {"limit": "5000/month in UTC", "name": "quota"}], "gone": {"block": true}}},
			"overrides": [{"name": "acme", "when": {"jwt.org": "acme"}, "limits": "100/s"}, {"when": {"jwt.org": "other"}, "limits": "7/s"}]},
		{"name": "site", "key": ["ip"], "limits": ["50 per day in Europe/Paris", "4 in flight"]}, {"name": "banned", "block": true}]}`)
	o := observe.New(observe.Options{})
	defer o.Close()
	if text := scrape(t, o); strings.Contains(text, "stint_rule_limit") {
		t.Errorf("limits without rules:\n%s", text)
	}
	o.WatchRules(func() *policy.Rules { return now })
	limitLines := func() (all []string) {
		for line := range strings.Lines(scrape(t, o)) {
			if strings.HasPrefix(line, "stint_rule_limit") {
				all = append(all, strings.TrimSpace(line))
			}
		}
		return all
	}
	want := `stint_rule_limit_period_seconds{key="ip",limit="day:Europe/Paris",rule="site",variant=""} 86400
stint_rule_limit_period_seconds{key="jwt.org",limit="gcra:1s",rule="api",variant="override acme"} 1
stint_rule_limit_period_seconds{key="jwt.org",limit="gcra:1s",rule="api",variant="tier free"} 1
stint_rule_limit_period_seconds{key="jwt.org",limit="gcra:1s",rule="api",variant="tier pro"} 1
stint_rule_limit_period_seconds{key="jwt.org",limit="quota",rule="api",variant="tier pro"} 2.592e+06
stint_rule_limit_units{key="ip",limit="day:Europe/Paris",rule="site",variant=""} 50
stint_rule_limit_units{key="ip",limit="in_flight",rule="site",variant=""} 4
stint_rule_limit_units{key="jwt.org",limit="gcra:1s",rule="api",variant="override acme"} 100
stint_rule_limit_units{key="jwt.org",limit="gcra:1s",rule="api",variant="tier free"} 1
stint_rule_limit_units{key="jwt.org",limit="gcra:1s",rule="api",variant="tier pro"} 10
stint_rule_limit_units{key="jwt.org",limit="quota",rule="api",variant="tier pro"} 5000
stint_rule_limits_left_out 0`
	if got := strings.Join(limitLines(), "\n"); got != want {
		t.Errorf("got\n%s", got)
	}
	many := make([]string, 1500)
	for i := range many {
		many[i] = fmt.Sprintf(`{"name": "r%d", "key": [], "match": {"path": "/%d"}, "limits": ["1/s"]}`, i, i)
	}
	now = made.Rules(t, `{"rules": [`+strings.Join(many, ",")+`]}`)
	if lines := limitLines(); len(lines) != 2001 || lines[2000] != "stint_rule_limits_left_out 500" {
		t.Errorf("%d lines, %s", len(lines), lines[len(lines)-1])
	}
}
