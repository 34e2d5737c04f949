package observe

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// mostLimits is how many limits of rules get series.
const mostLimits = 1000

// limits collects the limits in a rules file: those of rules, of tiers, and of overrides that have
// a name. Customers' own limits are not collected.
func (c collection) limits(rules *policy.Rules) {
	units := c.series(prometheus.GaugeValue, "stint_rule_limit_units",
		"Units that each limit of a rule allows in its period, or in flight if it has none.", "rule", "key", "variant", "limit")
	period := c.series(prometheus.GaugeValue, "stint_rule_limit_period_seconds",
		"The period of each limit of a rule; by the calendar a day is 24 hours and a month 30 days.", "rule", "key", "variant", "limit")
	told, all := 0, 0
	add := func(r *rulesfile.Rule, variant string, p *rulesfile.Plan) {
		if p == nil {
			return
		}
		names := make([]string, len(r.Key))
		for i, a := range r.Key {
			names[i] = a.Name
		}
		key := strings.Join(names, ", ")
		for _, l := range p.Limits {
			if all++; told < mostLimits {
				told++
				units(float64(l.Count()), r.Name, key, variant, l.Label())
				if !l.InFlight() { // a limit in flight has no period
					period(l.Period().Seconds(), r.Name, key, variant, l.Label())
				}
			}
		}
	}
	for _, r := range rules.File().Rules() {
		add(r, "", r.Own)
		if r.Tiers != nil {
			for i, name := range r.Tiers.Names {
				plan := r.Tiers.Plans[name]
				if r.Tiers.By.Sent() {
					name = strconv.Itoa(i + 1)
				}
				add(r, "tier "+name, plan)
			}
		}
		for i := range r.Overrides {
			if o := &r.Overrides[i]; o.Name != "" {
				add(r, "override "+o.Name, o.Plan)
			}
		}
	}
	c.gauge("stint_rule_limits_left_out", float64(all-told),
		"Limits of rules that have no series, because a thousand others have.")
}
