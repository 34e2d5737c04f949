package observe

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-dev/stint/cmd/internal/service/warn"
)

var (
	warningsDesc = prometheus.NewDesc("stint_warnings_total",
		"Keys that passed most of a limit (near) or were denied, each at most once a period of the limit.", []string{"rule", "level"}, nil)
	warningsLeftOutDesc = prometheus.NewDesc("stint_warnings_left_out_total",
		"Warnings that were not given because there was no room to remember them.", nil, nil)
	webhookDesc = prometheus.NewDesc("stint_webhook_total",
		"Warnings for the webhook, by what became of them: sent, failed after all attempts, or dropped because too many waited.", []string{"result"}, nil)
)

// warnings collects what a Warner counts.
type warnings struct{ o *Observer }

func (w warnings) Describe(to chan<- *prometheus.Desc) {
	to <- warningsDesc
	to <- warningsLeftOutDesc
}

func (w warnings) Collect(to chan<- prometheus.Metric) {
	if w.o.warner == nil {
		return
	}
	left := w.o.warner.Counts(func(rule string, level warn.Level, n uint64) {
		to <- prometheus.MustNewConstMetric(warningsDesc, prometheus.CounterValue, float64(n), rule, string(level))
	})
	to <- prometheus.MustNewConstMetric(warningsLeftOutDesc, prometheus.CounterValue, float64(left))
}

// webhooks collects what became of warnings, once there is a webhook.
type webhooks struct {
	ask atomic.Pointer[func() (sent, failed, dropped uint64)]
}

func (w *webhooks) Describe(to chan<- *prometheus.Desc) { to <- webhookDesc }

func (w *webhooks) Collect(to chan<- prometheus.Metric) {
	ask := w.ask.Load()
	if ask == nil {
		return
	}
	sent, failed, dropped := (*ask)()
	for result, n := range map[string]uint64{"sent": sent, "failed": failed, "dropped": dropped} {
		to <- prometheus.MustNewConstMetric(webhookDesc, prometheus.CounterValue, float64(n), result)
	}
}
