package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/planner/lab"
	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/page"
	"github.com/stint-dev/stint/service/rehearse"
	"github.com/stint-dev/stint/service/rulesapi"
	"github.com/stint-dev/stint/service/server"
	"github.com/stint-dev/stint/service/statefile"
)

// stateFlags say where the acts of operators are kept.
type stateFlags struct {
	State string `env:"STINT_STATE" placeholder:"FILE" more:"" help:"The file for overrides, blocks and the audit, when rules are in a file. The default is the name of the rules file with .state appended; none keeps them in memory only. With rules in a database, they are there."`
}

// path returns the state file, "" for none.
func (c *stateFlags) path(config string) string {
	switch {
	case c.State == "none" || c.State == "" && config == "":
		return ""
	case c.State == "":
		return config + ".state"
	}
	return c.State
}

// beside returns the path of the state file with an ending, "" if there is no state file.
func (c *stateFlags) beside(config, ending string) string {
	if path := c.path(config); path != "" {
		return path + ending
	}
	return ""
}

// backend returns what keeps the acts of operators and applies them: the database of the
// rules, or a state file; nil if there are no acts and there can be none.
func (s *sources) backend(c *sourceFlags, logger *slog.Logger) (rulesapi.Backend, error) {
	if db, ok := s.rules.(*rulesdb.DB); ok {
		return db, nil
	}
	path := c.path(c.Config)
	if path != "" {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("--state: %w", err)
		}
	}
	if _, err := os.Lstat(path); c.operators == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil // operators have done nothing, and can do nothing
	}
	k, err := statefile.Open(statefile.Options{Path: path, Source: s.source, Writes: c.operators != "", Node: c.Node, Log: logger})
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	s.stateFile = k
	return k, nil
}

// stateHint is the hint for a state file that cannot be written.
const stateHint = "--state FILE names a place that can be written; --state none keeps what operators do in memory"

// An operatorAPI serves what operators see and do.
type operatorAPI struct {
	editor     *rulesapi.Editor
	api        *rulesapi.Handler
	service    *operate.Service
	inDatabase bool // the rules are in a database
}

// operators applies the acts of operators, and serves them at the address of --admin
// until ctx is done. Without --admin, it serves nothing.
func (s *sources) operators(ctx context.Context, c *sourceFlags, d *access, admin *server.Admin, background *sync.WaitGroup, logger *slog.Logger) error {
	backend, err := s.backend(c, logger)
	if err != nil {
		return err
	}
	db, inDatabase := backend.(*rulesdb.DB)
	if inDatabase {
		db.OnWrite(s.source.Reach)
		if err := c.retain(ctx, db, c.Node, background, logger); err != nil {
			return err
		}
	}
	if c.operators == "" {
		return nil
	}
	editor := rulesapi.New(backend, checkRules, s.secret)
	service := operate.New(operate.Options{
		Source: s.source, Editor: editor, TopKeys: s.topKeys, Observer: s.observer, Stores: s.stores, Log: logger,
	})
	background.Go(func() { service.Run(ctx) })
	api := rulesapi.NewHandler(editor, rulesapi.HandlerOptions{Log: logger, Guest: d.guest(inDatabase), Routes: service.Routes(), Unban: service.Unban,
		KeyHash: func(rule, key string) string { return s.source.Policy().KeyHash(rule, key) }})
	return d.serveAdmin(ctx, c.operators, admin, s, &operatorAPI{editor, api, service, inDatabase}, background, logger)
}

// guest returns a function that finds the author and the role of a request without a token
// of the database. A token of --operator-token-file makes an operator, one of --token-file
// a viewer, unless its line says another role. On an address that only this machine reaches,
// a request without a token has a role too. If the rules are in a database, a guest
// whom no file names may only see how clients stand.
func (d *access) guest(inDatabase bool) func(r *http.Request) (string, rulesdb.Role) {
	return func(r *http.Request) (string, rulesdb.Role) {
		author, role, named := d.known(r)
		if inDatabase && role != "" && !named {
			if !operate.Reads(r.URL.Path) {
				return "", ""
			}
			role = rulesdb.Viewer
		}
		return author, role
	}
}

// known returns the author and the role of a request, and whether a file of tokens names
// the author.
func (d *access) known(r *http.Request) (author string, role rulesdb.Role, named bool) {
	shown := server.Shown(r)
	by, role, what := d.operators.Find(shown), rulesdb.Operator, "operator token"
	if by.Line == 0 {
		by, role, what = d.clients.Find(shown), rulesdb.Viewer, "token"
	}
	switch {
	case by.Name != "":
		return by.Name, rulesdb.Role(by.Role), true
	case by.Line > 0:
		return fmt.Sprintf("%s, line %d", what, by.Line), role, false
	}
	switch {
	case shown != "" || !d.local:
		return "", "", false
	case d.operators == nil:
		return "this machine", rulesdb.Operator, false
	}
	return "this machine", rulesdb.Viewer, false
}

// stores returns the state of the store in memory, and of the shared store if there is one.
func (s *sources) stores() []operate.Store {
	held := s.local.Stats()
	memory := operate.Store{Store: "memory", Keys: held.Keys, MaxKeys: held.MaxKeys, Bytes: held.Bytes}
	shared, ok := s.store.(*sharedStore)
	if !ok {
		return []operate.Store{memory}
	}
	now := shared.Stats()
	results := now.Results
	store := operate.Store{Store: s.where, Open: now.Open, Failures: results.NotExecuted + results.Ambiguous + results.Configuration + results.Unavailable}
	store.Calls, store.MeanMS, store.P99MS = took(now.Took)
	return []operate.Store{store, memory}
}

// took returns the number of calls, their mean in milliseconds, and the bound that 99 of
// a hundred kept, in milliseconds.
func took(d redisstore.Durations) (calls uint64, mean, p99 float64) {
	for _, n := range d.Counts {
		calls += n
	}
	if calls == 0 {
		return 0, 0, 0
	}
	mean = float64(d.Sum.Microseconds()) / float64(calls) / 1000
	sum, bounds := uint64(0), d.Bounds()
	for i, bound := range bounds {
		if sum += d.Counts[i]; sum*100 >= calls*99 {
			return calls, mean, float64(bound) / float64(time.Millisecond)
		}
	}
	return calls, mean, float64(bounds[len(bounds)-1]) / float64(time.Millisecond)
}

// usage returns the handler that shows customers their usage; nil without a secret to
// sign their tokens with.
func (s *sources) usage(logger *slog.Logger) http.Handler {
	if len(s.secret) == 0 {
		return nil
	}
	return operate.UsageHandler(s.source, s.secret, logger)
}

// serveAdmin serves operators at the address of --admin until ctx is done, in the
// background. An address that other machines reach requires tokens, of a file or of the
// database of rules, and uses https if the service has a certificate; without any tokens
// it has no lab. of serves what operators see and do.
func (d *access) serveAdmin(ctx context.Context, address string, admin *server.Admin, s *sources, of *operatorAPI, background *sync.WaitGroup, logger *slog.Logger) error {
	ln, err := listen(ctx, "--admin", address)
	if err != nil {
		return err
	}
	d.admin, d.local = ln.Addr(), server.Local(ln.Addr())
	o := server.ServeOptions{Log: logger, IdleTimeout: 5 * time.Second} // connections are few, and probes need them too
	tokens := d.clients != nil || d.operators != nil || of.inDatabase
	switch {
	case d.local:
	case !tokens:
		logger.Warn("everyone who reaches this address sees the metrics", "admin", ln.Addr().String())
	case d.certificate == nil:
		logger.Warn("tokens go over the network in clear: --tls-cert and --tls-key encrypt them", "admin", ln.Addr().String())
	}
	if !d.local && tokens && d.certificate != nil {
		o.TLS = d.certificate.Config()
	}
	lab := lab.New(lab.Options{Aside: true}) // decisions come first
	rehearsals := s.rehearsals(ctx, of, background, logger)
	if s.stateFile != nil {
		if err := s.stateFile.Unwritable(); err != nil {
			logger.Warn("operators can change nothing: the state file cannot be written", "error", err, "hint", stateHint)
		}
	}
	handler := server.NewAdminHandler(ln.Addr(), server.AdminHandlerOptions{
		Admin: admin, Page: s.page(ctx, of, rehearsals, background, logger), Rules: of.api, Usage: s.usage(logger),
		Rehearse: rehearsals, Lab: lab, Simulate: lab, Clients: d.clients, Operators: d.operators,
	})
	background.Go(func() {
		bounded := server.NewAdminConns(logger).Listen(ln)
		if err := server.Serve(ctx, bounded, handler, o); err != nil {
			logger.Error("--admin", "error", err)
		}
	})
	logger.Info("listening", "admin", ln.Addr().String(), "tls", o.TLS != nil)
	return nil
}

// page returns the page of operators, and updates it until ctx is done. rehearsals is nil
// if requests are not recorded.
func (s *sources) page(ctx context.Context, of *operatorAPI, rehearsals http.Handler, background *sync.WaitGroup, logger *slog.Logger) http.Handler {
	p := page.New(page.Options{
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rehearsals != nil && r.URL.Path == rehearse.Path {
				rehearsals.ServeHTTP(w, r)
				return
			}
			of.api.ServeHTTP(w, r)
		}),
		Who: of.api.Who, Service: of.service, Observer: s.observer, Ready: s.source.Ready,
		Publishes: of.inDatabase, Rehearses: rehearsals != nil, Log: logger,
	})
	background.Go(func() { p.Run(ctx) })
	return p
}
