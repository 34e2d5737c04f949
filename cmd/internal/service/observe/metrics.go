package observe

import (
	"cmp"
	"compress/gzip"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stint-dev/stint/cmd/internal/service/warn"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// mostScrapes is how many scrapers may be answered at once.
const mostScrapes = 4

// scrapes serves what is gathered in the form that a scraper asks for, packed if it
// takes gzip. Package promhttp does so too, and brings encoders of zstd along, of
// which the linker finds none to leave out.
func scrapes(from prometheus.Gatherer) http.Handler {
	turns := make(chan struct{}, mostScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			http.Error(w, "as many scrapes as may be are under way: "+strconv.Itoa(mostScrapes), http.StatusServiceUnavailable)
			return
		}
		families, err := from.Gather()
		if err != nil {
			http.Error(w, "metrics cannot be gathered: "+err.Error(), http.StatusInternalServerError)
			return
		}
		format := expfmt.Negotiate(r.Header)
		w.Header().Set("Content-Type", string(format))
		w.Header().Add("Vary", "Accept-Encoding")
		to := io.Writer(w)
		if takesGzip(r.Header) {
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			defer zip.Close() // a scraper that has gone needs no end
			to = zip
		}
		encoder := expfmt.NewEncoder(to, format)
		for _, family := range families {
			if encoder.Encode(family) != nil {
				return // the scraper has gone
			}
		}
	})
}

// takesGzip reports whether Accept-Encoding lists gzip, and not with a weight of 0.
func takesGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, ok := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			n, err := strconv.ParseFloat(q, 64)
			return !ok || err == nil && n > 0
		}
	}
	return false
}

var (
	decisionsDesc = prometheus.NewDesc("stint_decisions_total",
		"What each rule said, once for each request that it matched; rule is empty for requests that no rule matched.",
		[]string{"door", "rule", "decision"}, nil)
	fallbackDesc = prometheus.NewDesc("stint_fallback_total",
		"What each rule said without its store, because that failed.",
		[]string{"door", "rule", "fallback"}, nil)
	storeErrorsDesc = prometheus.NewDesc("stint_store_errors_total",
		"Requests for which the store failed, whether decided without it or not at all.",
		[]string{"door"}, nil)
	failedDesc = prometheus.NewDesc("stint_undecided_total",
		"Requests that no decision was made on, by reason.",
		[]string{"door", "reason"}, nil)
	forgottenDesc = prometheus.NewDesc("stint_callers_limits_forgotten_total",
		"Limits that callers gave and that made room for others, used more recently.",
		[]string{"door"}, nil)
)

// counters collects the counters of all entrypoints.
type counters struct{ o *Observer }

func (c counters) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{decisionsDesc, fallbackDesc, storeErrorsDesc, failedDesc, forgottenDesc} {
		to <- d
	}
}

// Collect leaves out the words that a rule never said, but for allowed and
// denied, which are worth a 0.
func (c counters) Collect(to chan<- prometheus.Metric) {
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	for _, d := range *c.o.entrypoints.Load() {
		count(storeErrorsDesc, d.storeErrors.Load(), d.name)
		count(forgottenDesc, d.forgotten.Load(), d.name)
		for why, name := range reasonNames {
			count(failedDesc, d.failed[why].Load(), d.name, name)
		}
		for rule, t := range *d.rules.Load() {
			for _, v := range verdicts {
				n := t.said[v].Load()
				if n > 0 || rule != unmatched && v <= policy.VerdictDenied {
					count(decisionsDesc, n, d.name, rule, v.String())
				}
			}
			for _, f := range fallbacks {
				if n := t.fellBack[f].Load(); n > 0 {
					count(fallbackDesc, n, d.name, rule, f.String())
				}
			}
		}
	}
}

// A gauge is one number of a store.
type gauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(memstore.Stats) float64
}

func newGauge(name, help string, kind prometheus.ValueType, of func(memstore.Stats) float64) gauge {
	return gauge{prometheus.NewDesc(name, help, nil, nil), kind, of}
}

// gauges are the values of memstore.Stats.
var gauges = []gauge{
	newGauge("stint_keys", "Keys that have a place in the store, counted once for each limit.",
		prometheus.GaugeValue, func(s memstore.Stats) float64 { return float64(s.Keys) }),
	newGauge("stint_keys_max", "The most keys that may have a place in the store.",
		prometheus.GaugeValue, func(s memstore.Stats) float64 { return float64(s.MaxKeys) }),
	newGauge("stint_keys_forgotten_total", "Keys that were forgotten because they had become as if never seen.",
		prometheus.CounterValue, func(s memstore.Stats) float64 { return float64(s.Evicted) }),
	newGauge("stint_full_keys_total", "Requests for which the store had no room for a key, because of its bound on keys.",
		prometheus.CounterValue, func(s memstore.Stats) float64 { return float64(s.FullKeys) }),
	newGauge("stint_full_bytes_total", "Requests for which the store had no room for logs or parts, because of its bound on bytes.",
		prometheus.CounterValue, func(s memstore.Stats) float64 { return float64(s.FullBytes) }),
	newGauge("stint_full_reservations_total", "Reservations that were refused, because as many were open as may be.",
		prometheus.CounterValue, func(s memstore.Stats) float64 { return float64(s.FullReservations) }),
	newGauge("stint_log_and_part_bytes", "Bytes that logs and parts take.",
		prometheus.GaugeValue, func(s memstore.Stats) float64 { return float64(s.PagedBytes) }),
	newGauge("stint_log_and_part_bytes_max", "About the most bytes that logs and parts may take.",
		prometheus.GaugeValue, func(s memstore.Stats) float64 { return float64(s.MaxBytes) }),
	newGauge("stint_store_bytes", "Bytes that the store's limits, tables, logs and parts take.",
		prometheus.GaugeValue, func(s memstore.Stats) float64 { return float64(s.Bytes) }),
	newGauge("stint_overflow_decisions_total", "Decisions on a cell that new keys share, because the store was full; they are not exact.",
		prometheus.CounterValue, func(s memstore.Stats) float64 { return float64(s.Overflowed) }),
	newGauge("stint_log_merges_total", "Charges that were merged into older entries of a log for lack of room.",
		prometheus.CounterValue, func(s memstore.Stats) float64 { return float64(s.Merged) }),
	newGauge("stint_reservations", "Reservations that are open, or settled and still remembered.",
		prometheus.GaugeValue, func(s memstore.Stats) float64 { return float64(s.Reservations) }),
	newGauge("stint_limits", "Limits that the store knows: bound, and held or with keys that still count.",
		prometheus.GaugeValue, func(s memstore.Stats) float64 { return float64(s.Limits) }),
}

// storeCollector collects what the store holds, once there is one to watch.
type storeCollector struct{ o *Observer }

func (h storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, g := range gauges {
		to <- g.desc
	}
}

func (h storeCollector) Collect(to chan<- prometheus.Metric) {
	store := h.o.store.Load()
	if store == nil {
		return
	}
	stats := store.Stats()
	for _, g := range gauges {
		to <- prometheus.MustNewConstMetric(g.desc, g.kind, g.of(stats))
	}
}

var (
	reloadedDesc = prometheus.NewDesc("stint_config_last_reload_successful",
		"1 if the last attempt to read the rules was taken, else 0.", nil, nil)
	reloadedAtDesc = prometheus.NewDesc("stint_config_last_reload_success_timestamp_seconds",
		"When rules were last taken, in seconds since the Unix epoch.", nil, nil)
)

// reload is what became of the attempts to read the rules.
type reload struct {
	mu    sync.Mutex
	tried bool
	good  bool
	taken time.Time // zero if none was
}

func (r *reload) note(at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried, r.good = true, err == nil
	if err == nil {
		r.taken = at
	}
}

func (r *reload) Describe(to chan<- *prometheus.Desc) {
	to <- reloadedDesc
	to <- reloadedAtDesc
}

func (r *reload) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.tried {
		return
	}
	good := 0.0
	if r.good {
		good = 1
	}
	to <- prometheus.MustNewConstMetric(reloadedDesc, prometheus.GaugeValue, good)
	if !r.taken.IsZero() {
		to <- prometheus.MustNewConstMetric(reloadedAtDesc, prometheus.GaugeValue, float64(r.taken.UnixMilli())/1000)
	}
}

// newBuild returns stint_build_info, which is always 1.
func newBuild(version string) prometheus.Collector {
	revision := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		if version == "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	if version == "" {
		version = "unknown"
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stint_build_info", Help: "1, with the build's version.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// snapshotDesc is there where a snapshot is kept.
var snapshotDesc = prometheus.NewDesc("stint_snapshot_last_success_timestamp_seconds",
	"Of when the last snapshot is that was saved, in seconds since the Unix epoch; 0 if none was yet.", nil, nil)

// snapshots collects of when the snapshot is, once one is kept.
type snapshots struct {
	saved atomic.Pointer[func() time.Time]
}

func (s *snapshots) Describe(to chan<- *prometheus.Desc) { to <- snapshotDesc }

func (s *snapshots) Collect(to chan<- prometheus.Metric) {
	saved := s.saved.Load()
	if saved == nil {
		return
	}
	seconds := 0.0
	if at := (*saved)(); !at.IsZero() {
		seconds = float64(at.UnixMilli()) / 1000
	}
	to <- prometheus.MustNewConstMetric(snapshotDesc, prometheus.GaugeValue, seconds)
}

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
func (o *Observer) WatchShared(ask func() Shared) { o.shared.read.Store(&ask) }

// shared collects the statistics of a shared store, once there is one.
type shared struct {
	read atomic.Pointer[func() Shared]
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
	newShared("stint_store_breakers_open", "Breakers that keep calls from servers which do not answer, or refuse the login.",
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
	ask := s.read.Load()
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
	read atomic.Pointer[func() (sent, failed, dropped uint64)]
}

func (w *webhooks) Describe(to chan<- *prometheus.Desc) { to <- webhookDesc }

func (w *webhooks) Collect(to chan<- prometheus.Metric) {
	ask := w.read.Load()
	if ask == nil {
		return
	}
	sent, failed, dropped := (*ask)()
	for result, n := range map[string]uint64{"sent": sent, "failed": failed, "dropped": dropped} {
		to <- prometheus.MustNewConstMetric(webhookDesc, prometheus.CounterValue, float64(n), result)
	}
}
