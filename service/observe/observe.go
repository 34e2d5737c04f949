// Package observe reports decisions to operators: metrics for Prometheus, and
// a log of denials. docs/METRICS.md lists the metrics and the lines.
//
// Every entrypoint of the program makes one call for each request, Decided or, when
// nothing could be decided, Failed:
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
// Labels are the names of entrypoints, of rules and of words that are listed here:
// nothing that a client sends. The log shows keys as hashes unless Options.LogKeys
// is set, and has a bounded number of lines however many clients are denied.
//
// Price: Decided allocates nothing once a rule has been seen at a entrypoint, and
// takes no lock. An Observer may be used from many goroutines at once, and has
// one goroutine of its own if it has a log.
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

// Options say what an Observer writes, and where. The zero value counts and
// logs nothing.
type Options struct {
	// Log receives denials, failures of the store and wrong tokens. The default discards
	// them.
	Log *slog.Logger
	// LogKeys shows keys in clear, which may be secrets that clients sent. The
	// default value is to show their hashes.
	LogKeys bool
	// Period is how often repeated denials are summed up. The default value is
	// 1 minute.
	Period time.Duration
	// Lines is the most lines on single keys in a Period; what finds no room
	// is counted in one line more. The default value is 100.
	Lines int
	// Sample has, for each rule named, which part of its denials gets a line each,
	// from 0 to 1, in place of one for the first denial of a key and sums. The
	// default value is no rule.
	Sample map[string]float64
	// TopKeys takes every decision. The default value is none.
	TopKeys *topkeys.Tracker
	// Warner takes every decision too. The default value is none.
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

	// reload is what became of the attempts to read the rules, under mu.
	reload struct {
		tried, good bool
		taken       time.Time // zero if none was
	}
	store    atomic.Pointer[memstore.Store]
	shared   atomic.Pointer[func() Shared]
	saved    atomic.Pointer[func() time.Time]
	webhook  atomic.Pointer[func() (sent, failed, dropped uint64)]
	limits   atomic.Pointer[func() *policy.Rules]
	inFlight atomic.Pointer[func() map[string]int64]
	waiting  atomic.Pointer[func() int]
	claims   atomic.Pointer[iter.Seq2[string, uint64]]
	scrapes  chan struct{} // that are under way

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

// Describe implements [prometheus.Collector]. It describes nothing, as the registry
// looks at what is collected: which metrics there are depends on what is watched.
func (o *Observer) Describe(chan<- *prometheus.Desc) {}

// durations are bounds of buckets: from the few hundred nanoseconds of a
// decision in memory to a store across a network that does not answer.
var durations = []float64{
	1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1,
}

// Gather returns the metrics, for exporters.
func (o *Observer) Gather() ([]*dto.MetricFamily, error) { return o.registry.Gather() }

// Watch adds what a store holds to the metrics; a second call replaces the
// store of the first.
func (o *Observer) Watch(store *memstore.Store) { o.store.Store(store) }

// WatchSnapshot adds of when the last snapshot is to the metrics: saved is asked
// for each scrape, and says zero while there is none.
func (o *Observer) WatchSnapshot(saved func() time.Time) { o.saved.Store(&saved) }

// WatchShared adds a store that other processes use too to the metrics: read is
// called for each scrape. A second call replaces the store of the first.
func (o *Observer) WatchShared(read func() Shared) { o.shared.Store(&read) }

// WatchRules adds the limits of rules to the metrics: now is called for each scrape.
func (o *Observer) WatchRules(now func() *policy.Rules) { o.limits.Store(&now) }

// WatchInFlight adds what each rule has in flight, such as [policy.Policy.InFlight], which
// is called at each scrape.
func (o *Observer) WatchInFlight(read func() map[string]int64) { o.inFlight.Store(&read) }

// WatchWaiting adds how many requests wait for their turn to the metrics: read is called at
// each scrape.
func (o *Observer) WatchWaiting(read func() int) { o.waiting.Store(&read) }

// WatchClaims adds how many tokens have had each outcome, asked for at each scrape.
func (o *Observer) WatchClaims(counts iter.Seq2[string, uint64]) { o.claims.Store(&counts) }

// WatchWebhook adds what became of warnings to the metrics: read is called for each
// scrape.
func (o *Observer) WatchWebhook(read func() (sent, failed, dropped uint64)) { o.webhook.Store(&read) }

// Reloaded notes an attempt to read the rules, the first one at the start
// included; err is why they were not taken. Without a call there are no metrics
// on the configuration.
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

// Close writes the summaries that are due and ends the Observer's goroutine.
// What is decided later is counted still, and denials of keys that are new are
// logged still, but nothing is summed up. A second call does nothing.
func (o *Observer) Close() {
	o.once.Do(func() { close(o.closed) })
	o.ended.Wait()
}
