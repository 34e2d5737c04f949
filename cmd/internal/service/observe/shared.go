package observe

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-dev/stint/redisstore"
)

// Shared is what is known of a store that other processes use too, at one
// moment.
type Shared struct {
	// Nodes is how many processes share it, as the operator configured or this
	// process has counted; 0 while that is not known.
	Nodes int
	// Store is the statistics of the store.
	Store redisstore.Stats
	// Owing is how many keys owe the store something because they passed while
	// it failed, Posted how many units have been charged to it afterwards, and
	// Forgiven how many were not remembered.
	Owing            int
	Posted, Forgiven uint64
}

// WatchShared adds a store that other processes use too to the metrics: ask is
// called for each scrape. A second call replaces the store of the first.
func (o *Observer) WatchShared(ask func() Shared) { o.shared.ask.Store(&ask) }

// shared collects the statistics of a shared store, once there is one.
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
		prometheus.GaugeValue, func(s Shared) float64 { return float64(s.Store.Open) }),
	newShared("stint_store_held_keys", "Keys that have a lease in hand, or something that the store has not been told.",
		prometheus.GaugeValue, func(s Shared) float64 { return float64(s.Store.Held) }),
	newShared("stint_store_overflowed_total", "Decisions on keys of the store that newcomers share, because there was no room for more, or this process had made as many new ones as it may.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Store.Overflowed) }),
	newShared("stint_store_overflow_denied_total", "Decisions on keys of the store that newcomers share by which such a key denied: by itself the key may have had room.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Store.OverflowDenied) }),
	newShared("stint_store_together_total", "Requests that were sent to the store in a call that had others too.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Store.Together) }),
	newShared("stint_store_batches_total", "Calls to the store that had several requests.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Store.Batches) }),
	newShared("stint_store_cross_slot_requests_total", "Requests that took calls to several nodes or slots of a cluster.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Store.CrossSlot) }),
	newShared("stint_store_leased_units", "Units that this process has in hand, in mode lease, of all keys together.",
		prometheus.GaugeValue, func(s Shared) float64 { return float64(s.Store.Leased) }),
	newShared("stint_store_denials_cached_total", "Denials without a call to the store, which had denied as much for longer.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Store.DenialsCached) }),
	newShared("stint_store_owing_keys", "Keys that owe the store something because they passed while it failed, counted once for each limit.",
		prometheus.GaugeValue, func(s Shared) float64 { return float64(s.Owing) }),
	newShared("stint_store_posted_units_total", "Units charged to the store after it had failed.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Posted) }),
	newShared("stint_store_forgiven_units_total", "Units that passed while the store failed and were not remembered.",
		prometheus.CounterValue, func(s Shared) float64 { return float64(s.Forgiven) }),
}

var (
	callsDesc = prometheus.NewDesc("stint_store_calls_total",
		"Calls to the store, by what they came to; an ambiguous one may have charged units that nobody got.",
		[]string{"result"}, nil)
	callTookDesc = prometheus.NewDesc("stint_store_call_duration_seconds",
		"How long calls to the store took that were made, whatever they came to.", nil, nil)
	nodeCallsDesc = prometheus.NewDesc("stint_store_node_calls_total",
		"Calls that were made to each server of the store.", []string{"node"}, nil)
	nodeTookDesc = prometheus.NewDesc("stint_store_node_seconds_total",
		"How long the calls to each server of the store took together.", []string{"node"}, nil)
	nodeOpenDesc = prometheus.NewDesc("stint_store_node_breaker_open",
		"1 where calls are kept from a server of the store, since it does not answer.", []string{"node"}, nil)
)

func (s *shared) Describe(to chan<- *prometheus.Desc) {
	to <- callsDesc
	to <- callTookDesc
	to <- nodeCallsDesc
	to <- nodeTookDesc
	to <- nodeOpenDesc
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
	for result, n := range map[string]uint64{
		"ok": now.Store.Results.OK, "not_executed": now.Store.Results.NotExecuted, "ambiguous": now.Store.Results.Ambiguous,
		"configuration": now.Store.Results.Configuration, "unavailable": now.Store.Results.Unavailable,
	} {
		to <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(n), result)
	}
	to <- histogram(callTookDesc, now.Store.Took)
	for _, n := range now.Store.Nodes {
		name, open := cmp.Or(n.Node, "server"), 0.0
		if n.Open {
			open = 1
		}
		to <- prometheus.MustNewConstMetric(nodeCallsDesc, prometheus.CounterValue, float64(n.Calls), name)
		to <- prometheus.MustNewConstMetric(nodeTookDesc, prometheus.CounterValue, n.Took.Seconds(), name)
		to <- prometheus.MustNewConstMetric(nodeOpenDesc, prometheus.GaugeValue, open, name)
	}
}

// histogram adds the buckets up, as Prometheus wants them.
func histogram(desc *prometheus.Desc, took redisstore.Durations) prometheus.Metric {
	buckets, sum := make(map[float64]uint64), uint64(0)
	for i, bound := range took.Bounds() {
		sum += took.Counts[i]
		buckets[float64(bound)/float64(time.Second)] = sum
	}
	sum += took.Counts[len(took.Counts)-1]
	return prometheus.MustNewConstHistogram(desc, sum, took.Sum.Seconds(), buckets)
}
