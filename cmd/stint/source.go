package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/service/claims"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/observe/otlp"
	"github.com/stint-dev/stint/service/observe/topkeys"
	"github.com/stint-dev/stint/service/observe/warn"
	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/rehearse"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
	"github.com/stint-dev/stint/service/statefile"
)

// sourceFlags say where the rules come from, and where decisions are reported.
type sourceFlags struct {
	Config         string `short:"c" env:"STINT_CONFIG" placeholder:"FILE" help:"The rules file, YAML or JSON. It is read again when it changes, and on SIGHUP."`
	databaseFlags  `embed:""`
	retentionFlags `embed:""`
	MaxKeys        int      `env:"STINT_MAX_KEYS" default:"1048576" placeholder:"N" more:"" help:"The most keys in memory, a key once for each limit (${default}). Beyond that, new keys share overflow cells."`
	TrustedProxy   []string `env:"STINT_TRUSTED_PROXY" placeholder:"CIDR" more:"" help:"A proxy from which stint accepts the client's address; overrides trusted_proxies of the file. May be repeated."`
	LogKeys        bool     `env:"STINT_LOG_KEYS" more:"" help:"Log keys in clear, such as addresses and API keys. The default is their hashes."`
	LogSample      []string `env:"STINT_LOG_SAMPLE" placeholder:"RULE=PART" more:"" help:"Log this share of a rule's denials, a line each, such as login=100% or scrapers=0.1%; 0% logs none. May be repeated. The default is the first denial of a key, and sums."`
	logFlag        `embed:""`
	storeFlags     `embed:""`
	snapshotFlags  `embed:""`
	recordFlags    `embed:""`
	stateFlags     `embed:""`
	warnFlags      `embed:""`
	otlpFlags      `embed:""`

	by        request.Interfaces       // the interfaces that requests come by
	from      func(flag string) string // where a flag is from, as [env.from]; nil in a demo
	operators string                   // the address of --admin; "" for none
}

// nameNode names this node by its host and port, unless --node names it: several nodes
// may run on one host.
func (c *sourceFlags) nameNode(address string) {
	if c.Node != "" {
		return
	}
	host, _ := os.Hostname() // only people read it
	if _, port, err := net.SplitHostPort(address); err == nil {
		address = port
	}
	c.Node = host + ":" + address
}

// sources are rules bound to a store, and the receivers of decisions.
type sources struct {
	store     stint.Store     // decides
	local     *memstore.Store // is store, or decides while store fails
	where     string          // names the store in the log
	observer  *observe.Observer
	source    *rules.Source
	rules     rulesource.Source // the source that it follows; nil for a file
	client    httplimit.ClientIP
	snapshot  *statefile.Snapshot // keeps local in a file; nil without --snapshot
	saveEvery time.Duration       // how often snapshot is saved
	recorder  *rehearse.Recorder  // keeps requests; nil without --admin, or with --record off
	exporter  *otlp.Exporter      // sends spans to OpenTelemetry; nil without --otlp
	topKeys   *topkeys.Tracker    // counts keys for operators; nil without --admin
	webhook   *warn.Webhook       // nil without --webhook
	secret    []byte              // the secret of --secret-file
	stateFile *statefile.File     // keeps the acts of operators; nil if a database does
	claims    *claims.Source      // verifies the claims of tokens
}

// openRules binds rules to a store: f, or if it is nil the rules that --config or --rules
// names. Close what it returns.
func (c *sourceFlags) openRules(ctx context.Context, f *rules.File, logger *slog.Logger) (*sources, error) {
	if c.MaxKeys < 1 {
		return nil, usage("--max-keys", "%d: at least 1", c.MaxKeys)
	}
	if err := errors.Join(c.storeFlags.check(), c.snapshotFlags.check()); err != nil {
		return nil, err
	}
	var trusted httplimit.ClientIP
	var err error
	if trusted.Trusted, err = proxies("--trusted-proxy", c.TrustedProxy); err != nil {
		return nil, err
	}
	warnOfAnyone("--trusted-proxy", trusted.Trusted, logger)
	warner, webhook, err := c.warner(logger)
	if err != nil {
		return nil, err
	}
	exporter, err := c.exporter(logger)
	if err != nil {
		return nil, err
	}
	sample, err := sampleOf(c.LogSample)
	if err != nil {
		return nil, err
	}
	watching := observe.Options{Log: logger, LogKeys: c.LogKeys, Sample: sample, Warner: warner}
	if exporter != nil {
		watching.Spans = exporter.Decided
	}
	s := &sources{
		local:    memstore.New(memstore.Options{MaxKeys: c.MaxKeys}),
		webhook:  webhook,
		client:   trusted,
		exporter: exporter,
	}
	if c.operators != "" { // nothing else shows what these keep
		s.topKeys, s.recorder = topkeys.New(), c.recorder()
	}
	watching.TopKeys = s.topKeys
	s.observer = observe.New(watching)
	s.observer.Watch(s.local)
	if webhook != nil {
		s.observer.WatchWebhook(webhook.Counts)
	}
	err = s.load(&c.snapshotFlags, logger)
	if err == nil {
		err = s.read(ctx, c, f, logger)
	}
	if err != nil {
		s.close()
		return nil, cmp.Or(ctx.Err(), err)
	}
	for name := range sample {
		if !slices.Contains(s.source.Policy().Rules().Names(), name) { // a warning, since the rules may get it
			logger.Warn("--log-sample: there is no rule by this name", "rule", name)
		}
	}
	return s, nil
}

// read binds f, or the rules that flags name, to the store that flags or the rules name.
func (s *sources) read(ctx context.Context, c *sourceFlags, f *rules.File, logger *slog.Logger) (err error) {
	path := ""
	var follower *rules.Follower
	switch {
	case f != nil:
	case c.Rules != "":
		if s.rules, follower, f, err = c.follow(ctx, logger); err != nil {
			return err
		}
	default:
		path = c.Config
		if f, err = rules.Read(path); err != nil {
			return err
		}
	}
	if c.storeFlags.url(f) == "" {
		if err := c.withoutStore(logger); err != nil {
			return err
		}
	}
	if s.store, err = c.storeFlags.open(f, s.local); err != nil {
		return &rules.Error{Name: cmp.Or(path, "rules"), Err: err}
	}
	u := c.storeFlags.url(f)
	s.where = cmp.Or(u.String(), "memory")
	s.claims = claims.New(claims.Options{State: c.beside(c.Config, ".keys"), Log: logger})
	var opened atomic.Pointer[rules.Source]
	o, err := s.options(c, &opened, logger)
	if err != nil {
		return err
	}
	var source *rules.Source
	if follower != nil {
		source, err = follower.Open(ctx, s.store, f, o)
	} else {
		source, err = rules.Open(s.store, path, f, o)
	}
	if err != nil {
		return err
	}
	opened.Store(source)
	s.source = source
	s.claims.Use(source.Policy().Rules().File().JWT())
	s.observer.WatchClaims(s.claims.Counts)
	s.observer.WatchRules(func() *policy.Rules { return source.Policy().Rules() })
	s.observer.WatchInFlight(func() map[string]int64 { return source.Policy().InFlight() })
	if shared, ok := s.store.(*sharedStore); ok {
		if s.snapshot != nil {
			logger.Warn("--snapshot has no effect on what the store keeps: it is of what decides while the store fails")
		}
		shared.count(func(n int) error { return source.Policy().SetNodes(n) }, c.beside(c.Config, ".nodes"), logger)
		shared.compareRules(func() *policy.Rules { return source.Policy().Rules() }, c.StorePrefix, logger)
		shared.warnOfEviction(u, logger)
		s.observer.WatchShared(func() observe.Shared {
			now := observe.Shared{Nodes: shared.nodes(), Counted: shared.knowsNodes(), Evicted: shared.evictionCheck.evicted.Load(), Store: shared.Stats()}
			now.Owing, now.Posted, now.Forgiven = source.Policy().Debts()
			return now
		})
	}
	settings := source.Settings()
	if len(c.TrustedProxy) == 0 {
		s.client.Trusted = settings.TrustedProxies
	}
	s.client.Header = settings.ClientIPHeader
	return nil
}

// options returns the options for the rules; opened will hold the Source that they make.
func (s *sources) options(c *sourceFlags, opened *atomic.Pointer[rules.Source], logger *slog.Logger) (rules.Options, error) {
	o := rules.Options{
		By: c.by, Log: logger,
		OnReload: func(at time.Time, err error) {
			s.observer.Reloaded(at, err)
			if now := opened.Load(); err == nil && now != nil {
				s.observer.Rules(now.Policy().Rules().Names())
				s.claims.Use(now.Policy().Rules().File().JWT())
			}
		},
	}
	var err error
	if o.Policy, err = c.storeFlags.options(s.local, s.store); err != nil {
		return o, err
	}
	if s.recorder != nil {
		o.Policy.OnDecision = s.recorder.Decided
	}
	s.secret = o.Policy.Secret
	return o, nil
}

func (s *sources) close() {
	if s.stateFile != nil {
		_ = s.stateFile.Close() // every act is in its file already
	}
	if s.rules != nil {
		_ = s.rules.Close() // it was only read
	}
	s.observer.Close()
	if s.source != nil {
		s.source.Policy().Close()
	}
	if shared, ok := s.store.(*sharedStore); ok {
		_ = shared.Close() // what keys have used stays there
	}
	if s.snapshot != nil {
		_ = s.snapshot.Close() // it is saved already
	}
	_ = s.local.Close() // a store in memory saves nothing
}

// recordFlags say what is recorded of requests, so that rules can be tried on them.
type recordFlags struct {
	Record          string   `env:"STINT_RECORD" enum:"on,off" default:"on" more:"" help:"Keep the last requests in memory, for stint rehearse: a million, 15 minutes or 64 MiB, whichever is least; on (the default) or off."`
	RecordAttribute []string `env:"STINT_RECORD_ATTRIBUTE" placeholder:"NAME" more:"" help:"Record this attribute of requests too. The default is those that the rules use."`
}

// recorder returns the recorder of requests; nil with --record off.
func (c *recordFlags) recorder() *rehearse.Recorder {
	if c.Record == "off" {
		return nil
	}
	return rehearse.NewRecorder(rehearse.RecorderOptions{Attributes: c.RecordAttribute})
}

// rehearsals returns the handler that tries rules on recorded requests; nil if none are
// recorded. of says who may use it. It makes checkpoints in the background until ctx is done.
func (s *sources) rehearsals(ctx context.Context, of *operatorAPI, background *sync.WaitGroup, logger *slog.Logger) http.Handler {
	if s.recorder == nil {
		return nil
	}
	var checkpoints *rehearse.Checkpoints
	if s.where == "memory" {
		checkpoints = new(rehearse.Checkpoints)
		background.Go(func() { checkpoints.Keep(ctx, s.local) })
	}
	return rehearse.NewHandler(rehearse.HandlerOptions{
		Checkpoints: checkpoints, Policy: s.source.Policy, Recorder: s.recorder, Check: checkRules, Fresh: s.where == "memory" && s.snapshot == nil, Log: logger,
		Who: of.api.Who,
		Note: func(ctx context.Context, author string) error {
			return of.editor.Note(ctx, rulesdb.Act{Author: author, Act: "key reveal", Subject: "rehearsal"})
		},
	})
}

// otlpFlags say where spans of decisions are sent.
type otlpFlags struct {
	OTLP string `name:"otlp" env:"STINT_OTLP" placeholder:"URL" more:"" help:"Send spans of decisions to an OpenTelemetry collector over OTLP/HTTP, such as http://127.0.0.1:4318. The default is none."`
}

// exporter returns the exporter to a collector; nil without --otlp.
func (c *otlpFlags) exporter(logger *slog.Logger) (*otlp.Exporter, error) {
	if c.OTLP == "" {
		return nil, nil
	}
	e, err := otlp.New(otlp.Options{URL: c.OTLP, Version: buildVersion(), Log: server.SampleLog(logger)})
	if err != nil {
		return nil, &usageError{"--otlp", err}
	}
	return e, nil
}

// sampleOf reads --log-sample: by rule, the share of its denials that is logged.
func sampleOf(all []string) (map[string]float64, error) {
	sample := make(map[string]float64, len(all))
	for _, text := range all {
		rule, part, _ := strings.Cut(text, "=")
		share, err := parseShare(&part)
		if err != nil || rule == "" || part == "" {
			return nil, usage("--log-sample", "%q: want a rule and a part, such as login=100%% or scrapers=0.1%%", text)
		}
		sample[rule] = float64(share)
	}
	return sample, nil
}

// warnFlags say when a customer is near a limit, and where that is reported.
type warnFlags struct {
	WarnAt            int    `env:"STINT_WARN_AT" default:"80" placeholder:"PERCENT" more:"" help:"The percentage of a limit from which a key counts as near it, and the webhook is called (${default})."`
	Webhook           string `env:"STINT_WEBHOOK" placeholder:"URL" more:"" help:"A URL to call when a key comes near a limit or is first denied, at most once for each period and key. Signed by Standard Webhooks."`
	WebhookSecretFile string `env:"STINT_WEBHOOK_SECRET_FILE" placeholder:"FILE" more:"" help:"A file with the secret that signs these calls."`
}

// warner returns what notices customers near their limits, and the webhook that it calls,
// nil for none.
func (c *warnFlags) warner(logger *slog.Logger) (*warn.Warner, *warn.Webhook, error) {
	if c.WarnAt < 1 || c.WarnAt > 100 {
		return nil, nil, usage("--warn-at", "%d: from 1 to 100", c.WarnAt)
	}
	if c.Webhook == "" {
		return warn.New(warn.Options{At: c.WarnAt}), nil, nil
	}
	if c.WebhookSecretFile == "" {
		return nil, nil, usage("--webhook", "goes with --webhook-secret-file: who is told must be able to check who tells")
	}
	secret, err := os.ReadFile(c.WebhookSecretFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--webhook-secret-file: %w", err)
	}
	hook, err := warn.NewWebhook(warn.WebhookOptions{URL: c.Webhook, Secret: bytes.TrimSpace(secret), Log: logger})
	if err != nil {
		return nil, nil, &usageError{"--webhook", err}
	}
	return warn.New(warn.Options{At: c.WarnAt, Send: hook.Send}), hook, nil
}

// snapshotFlags say where usage in memory is saved, and how often.
type snapshotFlags struct {
	Snapshot      string        `env:"STINT_SNAPSHOT" placeholder:"FILE" more:"" help:"Keep usage in this file, so that it survives a restart. It is loaded at the start, and saved every minute and at SIGTERM. Each process needs a file of its own."`
	SnapshotEvery time.Duration `env:"STINT_SNAPSHOT_EVERY" default:"1m" more:"" help:"How often to save it (${default}). A process that is killed loses no more than that."`
}

// leastSnapshotEvery keeps the disk from being all that the process does.
const leastSnapshotEvery = 100 * time.Millisecond

// check returns an error for a value that is out of range.
func (c *snapshotFlags) check() error {
	if c.Snapshot != "" && c.SnapshotEvery < leastSnapshotEvery {
		return usage("--snapshot-every", "%v: at least %v", c.SnapshotEvery, leastSnapshotEvery)
	}
	return nil
}

// load reads the snapshot into the store in memory, before limits are bound.
func (s *sources) load(c *snapshotFlags, logger *slog.Logger) (err error) {
	if c.Snapshot == "" {
		return nil
	}
	if s.snapshot, err = statefile.OpenSnapshot(c.Snapshot, s.local, logger); err != nil {
		return fmt.Errorf("--snapshot: %w", err)
	}
	s.saveEvery = c.SnapshotEvery
	s.observer.WatchSnapshot(s.snapshot.Saved)
	return nil
}

// report saves snapshots, sends warnings, spans and metrics, and fetches the keys of
// tokens, until ctx is done, in the background.
func (s *sources) report(ctx context.Context, background *sync.WaitGroup) {
	background.Go(func() { s.claims.Run(ctx) })
	if s.snapshot != nil {
		background.Go(func() { s.snapshot.Run(ctx, s.saveEvery) })
	}
	if s.webhook != nil {
		background.Go(func() { s.webhook.Run(ctx) })
	}
	if s.exporter != nil {
		background.Go(func() { s.exporter.Run(ctx) })
	}
}

// saveLast saves the snapshot for the last time, after the last decision.
func (s *sources) saveLast(logger *slog.Logger) error {
	if s.snapshot == nil {
		return nil
	}
	if err := s.snapshot.Save(); err != nil {
		return err
	}
	logger.Info("snapshot: saved")
	return nil
}

// limitFlags are rules on the command line: a file as an argument, or limits instead of
// a file.
type limitFlags struct {
	File  string   `arg:"" optional:"" name:"file" help:"The rules file; the same as --config."`
	Limit []string `sep:"none" placeholder:"LIMIT" help:"Instead of a rules file: the limit of each client, such as '10/s burst 20'. If repeated, all of them apply at once."`
	Key   string   `default:"ip" help:"With --limit, what identifies a client: ip (the client's address, IPv6 by /64), header.NAME (requests without it share one key) or none (all share one key). Default: ${default}."`
}

// sources opens the rules of c, or one rule, called name, made of --limit and --key.
func (l *limitFlags) sources(ctx context.Context, name string, c *sourceFlags, logger *slog.Logger) (*sources, error) {
	switch {
	case l.File != "" && c.Config != "" && c.Config != l.File:
		return nil, usage("--config", "%s, and the argument is %s: give one of them", c.Config, l.File)
	case l.File != "":
		c.Config = l.File
	}
	switch {
	case len(l.Limit) == 0 && c.Config == "" && c.Rules == "":
		return nil, usage("--config", "missing: write the rules file, such as -c stint.yaml, how much each client may, such as --limit '10/s burst 20', or --rules and a database")
	case len(l.Limit) == 0 && c.Config != "" && c.Rules != "":
		return nil, usage("--rules", "and --config: give one of them")
	case len(l.Limit) == 0:
		return c.openRules(ctx, nil, logger)
	case c.Config != "":
		return nil, usage("--limit", "does not go with --config: the limits are the file's")
	case c.Rules != "":
		return nil, usage("--limit", "does not go with --rules: the limits are the database's")
	}
	for _, text := range l.Limit {
		if each := splitLimits(text); len(each) > 1 {
			return nil, usage("--limit", "%q: repeat the flag: --limit '%s'", text, strings.Join(each, "' --limit '"))
		}
	}
	if _, err := parseLimits("--limit", l.Limit); err != nil {
		return nil, err
	}
	f, err := proxy.OneRule(name, l.Key, l.Limit)
	if errors.Is(err, proxy.ErrKey) {
		return nil, &usageError{"--key", err}
	}
	if one, ok := errors.AsType[*rulesfile.Error](err); ok { // the user has written no file
		if strings.HasPrefix(one.Hint, "name one of them") {
			one.Hint = "a rules file can have both, by names of their own"
		}
		err = &rulesfile.Error{Reason: one.Reason, Hint: one.Hint}
	}
	if err != nil {
		return nil, &usageError{"--limit", err}
	}
	return c.openRules(ctx, f, logger)
}

// follow reads the rules, the tokens and the certificate again when their files change and
// on SIGHUP, until ctx is done. What cannot be read stays as it was.
func (s *sources) follow(ctx context.Context, d *access, background *sync.WaitGroup, logger *slog.Logger) {
	background.Go(func() {
		if err := s.source.Watch(ctx); err != nil {
			logger.Error("the rules file is not watched: SIGHUP reads it again", "error", err)
		}
	})
	d.watch(ctx, background, logger)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // without it, a SIGHUP would end the process
	background.Go(func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			_ = s.source.Reload() // it logs an error itself
			d.reload(logger)
		}
	})
}
