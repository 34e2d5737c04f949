package observe

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/service/observe/warn"
)

// Collect implements [prometheus.Collector].
func (o *Observer) Collect(to chan<- prometheus.Metric) {
	c := collection(to)
	c.build()
	c.decisions(*o.entrypoints.Load())
	wrong := c.series(prometheus.CounterValue, "stint_wrong_tokens_total",
		"Tokens that were refused because they are not known, have ended or are revoked.", "interface")
	for at, name := range interfaceNames {
		wrong(float64(o.wrongTokens[at].Load()), name)
	}
	if counts := o.claims.Load(); counts != nil {
		verified := c.series(prometheus.CounterValue, "stint_jwt_tokens_total",
			"Tokens that a rule needed a claim of, by what became of them.", "outcome")
		for outcome, n := range *counts {
			verified(float64(n), outcome)
		}
	}
	o.collectReloads(c)
	if now := o.limits.Load(); now != nil {
		c.limits((*now)())
	}
	if store := o.store.Load(); store != nil {
		c.memory(store.Stats())
	}
	if ask := o.shared.Load(); ask != nil {
		c.shared((*ask)())
	}
	if saved := o.saved.Load(); saved != nil {
		c.gauge("stint_snapshot_last_success_timestamp_seconds", unixSeconds((*saved)()),
			"Of when the last snapshot is that was saved, in seconds since the Unix epoch; 0 if none was yet.")
	}
	if ask := o.inFlight.Load(); ask != nil {
		held := c.series(prometheus.GaugeValue, "stint_in_flight",
			"Units that each rule with a limit in flight has in flight in this process.", "rule")
		for rule, units := range (*ask)() {
			held(float64(units), rule)
		}
	}
	if ask := o.waiting.Load(); ask != nil {
		c.gauge("stint_proxy_waiting", float64((*ask)()),
			"Requests that the proxy has not decided yet, or that wait for their turn under a rule.")
	}
	if o.warner != nil {
		c.warnings(o.warner)
	}
	if ask := o.webhook.Load(); ask != nil {
		c.webhook((*ask)())
	}
}

// A collection receives the metrics of one scrape.
type collection chan<- prometheus.Metric

func (c collection) gauge(name string, value float64, help string) {
	c.series(prometheus.GaugeValue, name, help)(value)
}

func (c collection) counter(name string, value float64, help string) {
	c.series(prometheus.CounterValue, name, help)(value)
}

// series returns a function that adds one sample to a series, with the values of its labels.
func (c collection) series(kind prometheus.ValueType, name, help string, labels ...string) func(value float64, of ...string) {
	desc := prometheus.NewDesc(name, help, labels, nil)
	return func(value float64, of ...string) {
		c <- prometheus.MustNewConstMetric(desc, kind, value, of...)
	}
}

// unixSeconds returns 0 for the zero time.
func unixSeconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}

// boolean returns 1 or 0.
func boolean(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// decisions collects the counters of all entrypoints. It leaves out verdicts that a rule never
// returned, except allowed and denied, for which a 0 is useful.
func (c collection) decisions(entrypoints []*entrypoint) {
	decided := c.series(prometheus.CounterValue, "stint_decisions_total",
		"What each rule said, once for each request that it matched; rule is empty for requests that no rule matched.", "interface", "rule", "decision")
	fellBack := c.series(prometheus.CounterValue, "stint_fallback_total",
		"What each rule said without its store, because that failed.", "interface", "rule", "fallback")
	settled := c.series(prometheus.CounterValue, "stint_settled_units_total",
		"Units that responses have cost, and that reservations were settled at, under each rule.", "interface", "rule")
	storeErrors := c.series(prometheus.CounterValue, "stint_store_errors_total",
		"Requests for which the store failed, whether decided without it or not at all.", "interface")
	failed := c.series(prometheus.CounterValue, "stint_undecided_total",
		"Requests that no decision was made on, by reason.", "interface", "reason")
	forgotten := c.series(prometheus.CounterValue, "stint_callers_limits_forgotten_total",
		"Limits that callers gave and that made room for others, used more recently.", "interface")
	for _, d := range entrypoints {
		storeErrors(float64(d.storeErrors.Load()), d.name)
		forgotten(float64(d.forgotten.Load()), d.name)
		for why, name := range reasonNames {
			failed(float64(d.failed[why].Load()), d.name, name)
		}
		for rule, t := range *d.rules.Load() {
			for _, v := range verdicts {
				n := t.said[v].Load()
				if n > 0 || rule != unmatched && v <= policy.VerdictDenied {
					decided(float64(n), d.name, rule, v.String())
				}
			}
			if n := t.settled.Load(); n > 0 {
				settled(float64(n), d.name, rule)
			}
			for _, f := range fallbacks {
				if n := t.fellBack[f].Load(); n > 0 {
					fellBack(float64(n), d.name, rule, f.String())
				}
			}
		}
	}
}

// memory collects the statistics of a store in memory.
func (c collection) memory(s memstore.Stats) {
	c.gauge("stint_keys", float64(s.Keys),
		"Keys that have a place in the store, counted once for each limit.")
	c.gauge("stint_keys_max", float64(s.MaxKeys),
		"The most keys that may have a place in the store.")
	c.counter("stint_keys_forgotten_total", float64(s.Evicted),
		"Keys that were forgotten because they had become as if never seen.")
	c.counter("stint_full_keys_total", float64(s.FullKeys),
		"Requests for which the store had no room for a key, because of its bound on keys.")
	c.counter("stint_full_bytes_total", float64(s.FullBytes),
		"Requests for which the store had no room for logs or parts, because of its bound on bytes.")
	c.counter("stint_full_reservations_total", float64(s.FullReservations),
		"Reservations that were refused, because as many were open as may be.")
	c.gauge("stint_log_and_part_bytes", float64(s.PagedBytes),
		"Bytes that logs and parts take.")
	c.gauge("stint_log_and_part_bytes_max", float64(s.MaxBytes),
		"About the most bytes that logs and parts may take.")
	c.gauge("stint_store_bytes", float64(s.Bytes),
		"Bytes that the store's limits, tables, logs and parts take.")
	c.counter("stint_overflow_decisions_total", float64(s.Overflowed),
		"Decisions on a cell that new keys share, because the store was full; they are not exact.")
	c.counter("stint_log_merges_total", float64(s.Merged),
		"Charges that were merged into older entries of a log for lack of room.")
	c.gauge("stint_reservations", float64(s.Reservations),
		"Reservations that are open, or settled and still remembered.")
	c.gauge("stint_limits", float64(s.Limits),
		"Limits that the store knows: bound, and held or with keys that still count.")
}

// collectReloads collects the outcomes of reloads.
func (o *Observer) collectReloads(c collection) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reload.tried {
		c.gauge("stint_config_last_reload_successful", boolean(o.reload.good),
			"1 if the last attempt to read the rules was taken, else 0.")
	}
	if !o.reload.taken.IsZero() {
		c.gauge("stint_config_last_reload_success_timestamp_seconds", unixSeconds(o.reload.taken),
			"When rules were last taken, in seconds since the Unix epoch.")
	}
}

// build collects stint_build_info, which is always 1.
func (c collection) build() {
	version, revision := "", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	c.series(prometheus.GaugeValue, "stint_build_info", "1, with the build's version.", "version", "revision", "goversion")(
		1, cmp.Or(version, "unknown"), revision, runtime.Version())
}

// Shared is what is known at one moment about a store that other processes use too.
type Shared struct {
	// Nodes is how many processes share the store, as the operator configured or this process
	// counts, or counted in its last run; 0 if that is not known.
	Nodes int
	// Counted reports whether Nodes is configured or from a count of this run.
	Counted bool
	// Evicted is how many keys the store's masters have evicted, if that is known.
	Evicted int64
	// Store is the statistics of the store.
	Store redisstore.Stats
	// Owing is how many keys owe units that passed while the store failed. Posted is how many units
	// have been charged to it since, and Forgiven how many were dropped.
	Owing            int
	Posted, Forgiven uint64
}

// shared collects the statistics of a shared store.
func (c collection) shared(s Shared) {
	c.gauge("stint_store_nodes", float64(s.Nodes),
		"How many processes share the store, as this one was told or has counted; 0 while that is not known.")
	counted := 0.0
	if s.Counted {
		counted = 1
	}
	c.gauge("stint_store_nodes_counted", counted,
		"1 if this process was told how many share the store, or has counted them since it started; 0 while it assumes what it last knew, or that it is alone.")
	c.counter("stint_store_evicted_keys_total", float64(s.Evicted),
		"Keys that the store's masters have evicted since they started, as of the last look within a minute: whose they were starts afresh.")
	c.gauge("stint_store_breakers_open", float64(s.Store.Open),
		"Breakers that keep calls from servers which do not answer, or refuse the login.")
	c.gauge("stint_store_held_keys", float64(s.Store.Held),
		"Keys that have a lease in hand, or something that the store has not been told.")
	c.counter("stint_store_overflowed_total", float64(s.Store.Overflowed),
		"Decisions on keys of the store that newcomers share, because there was no room for more, or this process had made as many new ones as it may.")
	c.counter("stint_store_overflow_denied_total", float64(s.Store.OverflowDenied),
		"Decisions on keys of the store that newcomers share by which such a key denied: by itself the key may have had room.")
	c.counter("stint_store_together_total", float64(s.Store.Together),
		"Requests that were sent to the store in a call that had others too.")
	c.counter("stint_store_batches_total", float64(s.Store.Batches),
		"Calls to the store that had several requests.")
	c.counter("stint_store_cross_slot_requests_total", float64(s.Store.CrossSlot),
		"Requests that took calls to several nodes or slots of a cluster.")
	c.gauge("stint_store_leased_units", float64(s.Store.Leased),
		"Units that this process has in hand, in mode lease, of all keys together.")
	c.counter("stint_store_denials_cached_total", float64(s.Store.DenialsCached),
		"Denials without a call to the store, which had denied as much for longer.")
	c.gauge("stint_store_owing_keys", float64(s.Owing),
		"Keys that owe the store something because they passed while it failed, counted once for each limit.")
	c.counter("stint_store_posted_units_total", float64(s.Posted),
		"Units charged to the store after it had failed.")
	c.counter("stint_store_forgiven_units_total", float64(s.Forgiven),
		"Units that passed while the store failed and were not remembered.")
	calls := c.series(prometheus.CounterValue, "stint_store_calls_total",
		"Calls to the store, by what they came to; an ambiguous one may have charged units that nobody got.", "result")
	for result, n := range map[string]uint64{
		"ok": s.Store.Results.OK, "not_executed": s.Store.Results.NotExecuted, "ambiguous": s.Store.Results.Ambiguous,
		"configuration": s.Store.Results.Configuration, "unavailable": s.Store.Results.Unavailable,
	} {
		calls(float64(n), result)
	}
	c.histogram("stint_store_call_duration_seconds", s.Store.Took,
		"How long calls to the store took that were made, whatever they came to.")
	nodeCalls := c.series(prometheus.CounterValue, "stint_store_node_calls_total",
		"Calls that were made to each server of the store.", "node")
	nodeTook := c.series(prometheus.CounterValue, "stint_store_node_seconds_total",
		"How long the calls to each server of the store took together.", "node")
	nodeOpen := c.series(prometheus.GaugeValue, "stint_store_node_breaker_open",
		"1 where calls are kept from a server of the store, since it does not answer.", "node")
	for _, n := range s.Store.Nodes {
		name := cmp.Or(n.Node, "server")
		nodeCalls(float64(n.Calls), name)
		nodeTook(n.Took.Seconds(), name)
		nodeOpen(boolean(n.Open), name)
	}
}

// histogram makes cumulative buckets, as Prometheus wants them.
func (c collection) histogram(name string, took redisstore.Durations, help string) {
	buckets, sum := make(map[float64]uint64), uint64(0)
	for i, bound := range took.Bounds() {
		sum += took.Counts[i]
		buckets[float64(bound)/float64(time.Second)] = sum
	}
	sum += took.Counts[len(took.Counts)-1]
	c <- prometheus.MustNewConstHistogram(prometheus.NewDesc(name, help, nil, nil), sum, took.Sum.Seconds(), buckets)
}

// warnings collects the counts of a Warner.
func (c collection) warnings(w *warn.Warner) {
	given := c.series(prometheus.CounterValue, "stint_warnings_total",
		"Keys that passed most of a limit (near) or were denied, each at most once a period of the limit.", "rule", "level")
	left := w.Counts(func(rule string, level warn.Level, n uint64) { given(float64(n), rule, string(level)) })
	c.counter("stint_warnings_left_out_total", float64(left),
		"Warnings that were not given because there was no room to remember them.")
}

// webhook collects the outcomes of warnings.
func (c collection) webhook(sent, failed, dropped uint64) {
	ended := c.series(prometheus.CounterValue, "stint_webhook_total",
		"Warnings for the webhook, by what became of them: sent, failed after all attempts, or dropped because too many waited.", "result")
	ended(float64(sent), "sent")
	ended(float64(failed), "failed")
	ended(float64(dropped), "dropped")
}
