package observe

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

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

// held collects what the store holds, once there is one to watch.
type held struct{ o *Observer }

func (h held) Describe(to chan<- *prometheus.Desc) {
	for _, g := range gauges {
		to <- g.desc
	}
}

func (h held) Collect(to chan<- prometheus.Metric) {
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
