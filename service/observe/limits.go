package observe

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// mostLimits is how many limits of rules have series of their own.
const mostLimits = 1000

// limits collects what the rules of a file hold clients to: their own limits, those of
// tiers, and those of overrides that have a name. What customers have is not among it.
func (c collection) limits(rules *policy.Rules) {
	units := c.series(prometheus.GaugeValue, "stint_rule_limit_units",
		"Units that each limit of a rule allows in its period, or in flight if it has none.", "rule", "variant", "limit")
	period := c.series(prometheus.GaugeValue, "stint_rule_limit_period_seconds",
		"The period of each limit of a rule; by the calendar a day is 24 hours and a month 30 days.", "rule", "variant", "limit")
	told, all := 0, 0
	add := func(rule, variant string, p *rulesfile.Plan) {
		if p == nil {
			return
		}
		for _, l := range p.Limits {
			if all++; told < mostLimits {
				told++
				units(float64(l.Count()), rule, variant, l.Label())
				if !l.InFlight() { // which has none
					period(l.Period().Seconds(), rule, variant, l.Label())
				}
			}
		}
	}
	for _, r := range rules.File().Rules() {
		add(r.Name, "", r.Own)
		if r.Tiers != nil {
			for _, name := range r.Tiers.Names {
				add(r.Name, "tier "+name, r.Tiers.Plans[name])
			}
		}
		for i := range r.Overrides {
			if o := &r.Overrides[i]; o.Name != "" {
				add(r.Name, "override "+o.Name, o.Plan)
			}
		}
	}
	c.gauge("stint_rule_limits_left_out", float64(all-told),
		"Limits of rules that have no series, because a thousand others have.")
}
