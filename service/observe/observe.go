// Package observe reports decisions to operators: metrics for Prometheus, and a log of denials.
// docs/METRICS.md lists the metrics and the lines.
//
// Every entrypoint of the program makes one call for each request: Decided, Failed if no decision
// could be made, or Overloaded if none was tried. Settled reports what the end of a request cost.
//
//	o := observe.New(observe.Options{Log: log})
//	defer o.Close()
//	…
//	begun := time.Now()
//	err := source.Policy().Decide(ctx, attrs, 1, &r)
//	if err != nil {
//		o.Failed("http", err)
//	} else {
//		o.Decided("http", &r, observe.Request{Took: time.Since(begun), Header: header})
//	}
//
// The values of labels are names of entrypoints and rules, and words listed in this package, but
// never text that a client sends. The log shows keys as hashes unless Options.LogKeys is set, and
// has a bounded number of lines however many clients are denied.
//
// Price: Decided takes no lock, and allocates nothing once an entrypoint has seen a rule. An
// Observer may be used from many goroutines at once, and runs one goroutine if it has a log.
package observe

import (
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/observe/topkeys"
	"github.com/stint-dev/stint/service/observe/warn"
)

// Options are the options of an Observer. The zero value counts and logs nothing.
type Options struct {
	// Log receives denials, failures of the store and wrong tokens. The default discards
	// them.
	Log *slog.Logger
	// LogKeys shows keys in clear, though they may be secrets that clients sent. The default value
	// is to show their hashes.
	LogKeys bool
	// Period is how often repeated denials are summed up. The default value is
	// 1 minute.
	Period time.Duration
	// Lines bounds the lines on single keys in a Period; keys beyond it are counted in one more
	// line. The default value is 100.
	Lines int
	// Sample names rules, and for each the fraction of its denials, from 0 to 1, that get a line,
	// instead of one for the first denial of a key and summaries. The default value has no rule.
	Sample map[string]float64
	// TopKeys is told of every decision. The default value is none.
	TopKeys *topkeys.Tracker
	// Warner is told of every decision. The default value is none.
	Warner *warn.Warner
	// Spans is called with decisions on requests that may belong to a trace.
	// Optional.
	Spans func(r *policy.Result, q Request)
}

// An Observer counts decisions, and logs those that denied. Make one with New.
type Observer struct {
	registry    *prometheus.Registry
	took        *prometheus.HistogramVec
	entrypoints atomic.Pointer[[]*entrypoint] // replaced as a whole, under mu
	mu          sync.Mutex                    // held to add entrypoints and rules, and for reload

	// reload is the outcomes of reloads, under mu.
	reload struct {
		tried, good bool
		taken       time.Time // when rules were last taken; zero if never
	}
	store    atomic.Pointer[memstore.Store]
	shared   atomic.Pointer[func() Shared]
	saved    atomic.Pointer[func() time.Time]
	webhook  atomic.Pointer[func() (sent, failed, dropped uint64)]
	limits   atomic.Pointer[func() *policy.Rules]
	inFlight atomic.Pointer[func() map[string]int64]
	waiting  atomic.Pointer[func() int]
	claims   atomic.Pointer[iter.Seq2[string, uint64]]
	scrapes  chan struct{} // has a slot for each scrape in progress

	wrongTokens [interfaces]atomic.Uint64

	topKeys *topkeys.Tracker // nil if there is none
	warner  *warn.Warner     // nil if there is none
	log     *denials         // nil if there is no log
	closed  chan struct{}
	ended   sync.WaitGroup
	once    sync.Once

	spans func(r *policy.Result, q Request) // optional
}

// New returns an Observer. Close it to end its goroutine.
func New(o Options) *Observer {
	ob := &Observer{
		registry: prometheus.NewRegistry(),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stint_decision_duration_seconds", Help: "How long decisions took, by entrypoint.",
			Buckets: durations,
		}, []string{"interface"}),
		topKeys: o.TopKeys,
		warner:  o.Warner,
		spans:   o.Spans,
		closed:  make(chan struct{}),
		scrapes: make(chan struct{}, mostScrapes),
	}
	ob.entrypoints.Store(new([]*entrypoint))
	ob.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		ob.took, ob,
	)
	if o.Log != nil {
		if o.Period <= 0 {
			o.Period = time.Minute
		}
		if o.Lines <= 0 {
			o.Lines = 100
		}
		ob.log = newDenials(o)
		ob.ended.Go(func() { ob.sumUp(o.Period) })
	}
	return ob
}

// Describe implements [prometheus.Collector]. It describes nothing, since the metrics depend on
// what is watched; the registry then checks what is collected.
func (o *Observer) Describe(chan<- *prometheus.Desc) {}

// durations are the bounds of buckets: from the few hundred nanoseconds of a decision in memory to
// the timeout of a store across a network.
var durations = []float64{
	1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1,
}

// Gather returns the metrics, for exporters.
func (o *Observer) Gather() ([]*dto.MetricFamily, error) { return o.registry.Gather() }

// Watch adds the statistics of a store in memory to the metrics. A second call replaces the store.
func (o *Observer) Watch(store *memstore.Store) { o.store.Store(store) }

// WatchSnapshot adds the time of the last snapshot to the metrics. saved is called at each scrape,
// and returns zero while there is no snapshot.
func (o *Observer) WatchSnapshot(saved func() time.Time) { o.saved.Store(&saved) }

// WatchShared adds a store that other processes use too to the metrics. read is called at each
// scrape. A second call replaces the store.
func (o *Observer) WatchShared(read func() Shared) { o.shared.Store(&read) }

// WatchRules adds the limits of rules to the metrics. now is called at each scrape.
func (o *Observer) WatchRules(now func() *policy.Rules) { o.limits.Store(&now) }

// WatchInFlight adds what each rule has in flight to the metrics. read, such as
// [policy.Policy.InFlight], is called at each scrape.
func (o *Observer) WatchInFlight(read func() map[string]int64) { o.inFlight.Store(&read) }

// WatchWaiting adds how many requests wait for their turn to the metrics. read is called at each
// scrape.
func (o *Observer) WatchWaiting(read func() int) { o.waiting.Store(&read) }

// WatchClaims adds how many tokens had each outcome to the metrics. counts is read at each scrape.
func (o *Observer) WatchClaims(counts iter.Seq2[string, uint64]) { o.claims.Store(&counts) }

// WatchWebhook adds the outcomes of warnings to the metrics. read is called at each scrape.
func (o *Observer) WatchWebhook(read func() (sent, failed, dropped uint64)) { o.webhook.Store(&read) }

// Reloaded records an attempt to read the rules, including the first one at the start. err says why
// they were refused. Without a call there are no metrics of the configuration.
func (o *Observer) Reloaded(at time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reload.tried, o.reload.good = true, err == nil
	if err == nil {
		o.reload.taken = at
	}
}

// sumUp writes summaries, one period after another, until the Observer closes.
func (o *Observer) sumUp(period time.Duration) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for {
		select {
		case now := <-ticks.C:
			o.log.sumUp(now)
		case <-o.closed:
			o.log.sumUp(time.Now())
			return
		}
	}
}

// Close writes the pending summaries and ends the Observer's goroutine. Later decisions are still
// counted, and first denials still logged, but there are no more summaries. A second call does
// nothing.
func (o *Observer) Close() {
	o.once.Do(func() { close(o.closed) })
	o.ended.Wait()
}
