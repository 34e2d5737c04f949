package caddylimit

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-dev/stint/policy"
)

// Metrics are counted beside Caddy's own. No label holds anything of a client.
type metrics struct {
	decisions *prometheus.CounterVec   // by name, rule, decision
	undecided *prometheus.CounterVec   // by name
	duration  *prometheus.HistogramVec // by name
}

// newMetrics registers the metrics of all handlers of a configuration.
func newMetrics(r *prometheus.Registry) (m *metrics, err error) {
	m = &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stint_decisions_total", Help: "What each rule said, once for each request that it matched.",
		}, []string{"name", "rule", "decision"}),
		undecided: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stint_undecided_total", Help: "Requests that no decision was made on.",
		}, []string{"name"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stint_decision_duration_seconds", Help: "How long decisions took.",
			Buckets: []float64{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 1},
		}, []string{"name"}),
	}
	if m.decisions, err = register(r, m.decisions); err != nil {
		return nil, err
	}
	if m.undecided, err = register(r, m.undecided); err != nil {
		return nil, err
	}
	m.duration, err = register(r, m.duration)
	return m, err
}

// register registers a collector, or returns the one that another handler of the configuration has
// registered.
func register[T prometheus.Collector](r *prometheus.Registry, c T) (T, error) {
	err := r.Register(c)
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return known.ExistingCollector.(T), nil
	}
	return c, err
}

// count counts the verdict of each rule. A rule has an entry for each of its limits.
func (m *metrics) count(name string, r *policy.Result) {
	if len(r.Rules) == 0 {
		m.decisions.WithLabelValues(name, "", "allowed").Inc()
	}
	for _, e := range r.ByRule {
		m.decisions.WithLabelValues(name, e.Rule, e.Verdict().String()).Inc()
	}
}
