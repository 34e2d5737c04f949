package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/cmd/internal/service/acts"
	"github.com/stint-dev/stint/cmd/internal/service/observe"
	"github.com/stint-dev/stint/cmd/internal/service/otlp"
	"github.com/stint-dev/stint/cmd/internal/service/record"
	"github.com/stint-dev/stint/cmd/internal/service/rules"
	"github.com/stint-dev/stint/cmd/internal/service/snapshot"
	"github.com/stint-dev/stint/cmd/internal/service/top"
	"github.com/stint-dev/stint/cmd/internal/service/warn"
)

// sourceFlags say where the rules come from, and where decisions are reported.
type sourceFlags struct {
	Config         string `short:"c" env:"STINT_CONFIG" placeholder:"FILE" help:"The rules file, YAML or JSON. It is read again when it changes, and on SIGHUP."`
	databaseFlags  `embed:""`
	retentionFlags `embed:""`
	MaxKeys        int      `env:"STINT_MAX_KEYS" default:"1048576" placeholder:"N" help:"The most keys remembered, for each limit (${default}). Beyond it newcomers share limits."`
	TrustedProxy   []string `env:"STINT_TRUSTED_PROXY" placeholder:"CIDR" help:"A proxy whose word about the client is taken, in place of the file's trusted_proxies. May be given several times."`
	LogKeys        bool     `env:"STINT_LOG_KEYS" help:"Log keys in clear: addresses, API keys, whatever rules key by. The default is their hashes."`
	LogSample      []string `env:"STINT_LOG_SAMPLE" placeholder:"RULE=PART" help:"Log this part of a rule's denials, a line each, such as login=100% or scrapers=0.1%; 0% is none of them. May be given several times. The default is the first denial of a key, and sums."`
	LogFormat      string   `env:"STINT_LOG_FORMAT" enum:"text,json" default:"text" help:"The log's form, text (the default) or json."`
	storeFlags     `embed:""`
	snapshotFlags  `embed:""`
	recordFlags    `embed:""`
	stateFlags     `embed:""`
	warnFlags      `embed:""`
	otlpFlags      `embed:""`

	declared bool // whether attributes that no HTTP request has must be declared
}

// logger returns the log, on standard error.
func (c *sourceFlags) logger(e *env) *slog.Logger {
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(e.err, nil))
	}
	return slog.New(slog.NewTextHandler(e.err, nil))
}

// sources are rules on a store, and the receivers of decisions.
type sources struct {
	store    stint.Store     // that decides
	local    *memstore.Store // the same, or what decides while that fails
	where    string          // the store is, for the log
	observer *observe.Observer
	source   *rules.Source
	rules    rulesource.Source // that it follows; nil for a file
	client   httplimit.ClientIP
	snapshot *snapshot.File   // of local; nil if none is kept
	recorder *record.Recorder // of requests; nil if none are kept
	exporter *otlp.Exporter   // to OpenTelemetry; nil if there is no collector
	board    *top.Board
	webhook  *warn.Webhook // nil if there is none
	secret   []byte        // of --secret-file
	acts     *acts.Keeper  // what operators did; nil if a database keeps that
}

// open reads the rules and binds them to a store. Close what it returns.
func (c *sourceFlags) open(logger *slog.Logger) (*sources, error) {
	switch {
	case c.Config != "" && c.Rules != "":
		return nil, usage("--rules", "and --config: give one of them")
	case c.Config == "" && c.Rules == "":
		return nil, usage("--config", "missing: write the rules file, such as -c stint.yaml, or --rules and a database")
	}
	return c.openRules(nil, logger)
}

// openRules is open for rules that need no file; nil is those of --config.
func (c *sourceFlags) openRules(f *rules.File, logger *slog.Logger) (*sources, error) {
	if c.MaxKeys < 1 {
		return nil, usage("--max-keys", "%d: at least 1", c.MaxKeys)
	}
	if err := errors.Join(c.storeFlags.check(), c.snapshotFlags.check()); err != nil {
		return nil, err
	}
	var trusted httplimit.ClientIP
	for _, text := range c.TrustedProxy {
		p, err := rules.ParseProxy(text)
		if err != nil {
			return nil, &usageError{"--trusted-proxy", err}
		}
		trusted.Trusted = append(trusted.Trusted, p)
	}
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
	board := top.New()
	watching.Board = board
	s := &sources{
		local:    memstore.New(memstore.Options{MaxKeys: c.MaxKeys}),
		observer: observe.New(watching),
		board:    board,
		webhook:  webhook,
		client:   trusted,
		recorder: c.recorder(),
		exporter: exporter,
	}
	s.observer.Watch(s.local)
	if webhook != nil {
		s.observer.WatchWebhook(webhook.Counts)
	}
	err = s.load(&c.snapshotFlags, logger)
	if err == nil {
		err = s.read(c, f, logger)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// read binds the rules of a file, or of f, to the store that flags or the file
// name.
func (s *sources) read(c *sourceFlags, f *rules.File, logger *slog.Logger) (err error) {
	path := ""
	var follower *rules.Follower
	switch {
	case f != nil:
	case c.Rules != "":
		if s.rules, follower, f, err = c.follow(logger); err != nil {
			return err
		}
	default:
		path = c.Config
		if f, err = rules.Read(path); err != nil {
			return err
		}
	}
	u := c.storeFlags.url(f)
	if s.store, err = c.storeFlags.open(u, s.local, logger); err != nil {
		return &rules.Error{Name: cmp.Or(path, "rules"), Err: err}
	}
	s.where = cmp.Or(u.String(), "memory")
	var opened atomic.Pointer[rules.Source]
	o := rules.Options{
		Declared: c.declared, Log: logger,
		OnReload: func(at time.Time, err error) {
			s.observer.Reloaded(at, err)
			if now := opened.Load(); err == nil && now != nil {
				s.observer.Rules(now.Policy().Rules().Names())
			}
		},
	}
	if o.Policy, err = c.storeFlags.options(s.local, s.store); err != nil {
		return err
	}
	if s.recorder != nil {
		o.Policy.OnDecision = s.recorder.Decided
	}
	s.secret = o.Policy.Secret
	var source *rules.Source
	if follower != nil {
		source, err = follower.Open(context.Background(), s.store, f, o)
	} else {
		source, err = rules.OpenFile(s.store, path, f, o)
	}
	if err != nil {
		return err
	}
	opened.Store(source)
	s.source = source
	if shared, ok := s.store.(*sharedStore); ok {
		if s.snapshot != nil {
			logger.Warn("--snapshot has no effect on what the store keeps: it is of what decides while the store fails")
		}
		shared.count(func(n int) error { return source.Policy().SetNodes(n) }, logger)
		shared.warnOfEviction(u, logger)
		s.observer.WatchShared(func() observe.Shared {
			now := observe.Shared{Nodes: shared.nodes(), Store: shared.Stats()}
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

func (s *sources) close() {
	if s.acts != nil {
		_ = s.acts.Close() // every act is in its file
	}
	if s.rules != nil {
		_ = s.rules.Close() // it was read from
	}
	s.observer.Close()
	if s.source != nil {
		s.source.Policy().Close()
	}
	if shared, ok := s.store.(*sharedStore); ok {
		_ = shared.Close() // what keys have used stays there
	}
	_ = s.local.Close() // it is in memory: nothing is to be saved
}
