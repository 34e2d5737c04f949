package observe

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Shared is what is known of a store that other processes use too, at one
// moment.
type Shared struct {
	// Nodes is how many processes share it, as this one was told or has counted;
	// 0 while that is not known.
	Nodes int
	// Open is how many breakers keep calls from servers that do not answer.
	Open int
	// Held is how many keys have something in hand, or not yet told the store.
	Held int64
	// Overflowed is how many decisions were made on overflow keys, because this
	// process had used up its budget for new ones.
	Overflowed uint64
	// Owing is how many keys owe the store something because they passed while
	// it failed, Posted how many units have been charged to it afterwards, and
	// Forgiven how many were not remembered.
	Owing            int
	Posted, Forgiven uint64
}

// WatchShared adds a store that other processes use too to the metrics: ask is
// called for each scrape. A second call replaces the store of the first.
func (o *Observer) WatchShared(ask func() Shared) { o.shared.ask.Store(&ask) }

// shared collects what a shared store tells, once there is one.
type shared struct {
	ask atomic.Pointer[func() Shared]
}

// A sharedMetric is one number of a shared store.
type sharedMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(Shared) float64
}

func newShared(name, help string, kind prometheus.ValueType, of func(Shared) float64) sharedMetric {
	return sharedMetric{prometheus.NewDesc(name, help, nil, nil), kind, of}
}

var sharedMetrics = []sharedMetric{
	newShared("stint_store_nodes", "How many processes share the store, as this one was told or has counted; 0 while that is not known.",
		prometheus.GaugeValue, func(s Shared) float64 { return float64(s.Nodes) }),
	newShared("stint_store_breakers_open", "Breakers that keep calls from servers which do not answer.",
		prometheus.GaugeValue, func(s Shared) float64 { return float64(s.Open) }),
	newShared("stint_store_held_keys", "Keys that have a lease in hand, or something that the store has not been told.",
		prometheus.GaugeValue, func(s Shared) float64 { return float64(s.Held) }),
	newShared("stint_store_overflowed_total", "Decisions on keys of the store that newcomers share, because this process had made as many new ones as it may.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Overflowed) }),
	newShared("stint_store_owing_keys", "Keys that owe the store something because they passed while it failed, counted once for each limit.",
		prometheus.GaugeValue, func(s Shared) float64 { return float64(s.Owing) }),
	newShared("stint_store_posted_units_total", "Units charged to the store after it had failed.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Posted) }),
	newShared("stint_store_forgiven_units_total", "Units that passed while the store failed and were not remembered.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Forgiven) }),
}

func (s *shared) Describe(to chan<- *prometheus.Desc) {
	for _, m := range sharedMetrics {
		to <- m.desc
	}
}

func (s *shared) Collect(to chan<- prometheus.Metric) {
	ask := s.ask.Load()
	if ask == nil {
		return
	}
	now := (*ask)()
	for _, m := range sharedMetrics {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(now))
	}
}
