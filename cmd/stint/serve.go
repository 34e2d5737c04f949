package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/request"

	"github.com/stint-dev/stint/service/server"
)

type serveCmd struct {
	sourceFlags   `embed:""`
	limitFlags    `embed:""`
	demoFlags     `embed:""`
	listenerFlags `embed:""`
	connFlags     `embed:""`

	HTTP              string        `name:"http" env:"STINT_HTTP" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"The address of the service (${default}); unix:/run/stint.sock is a Unix socket."`
	TLSCert           string        `name:"tls-cert" env:"STINT_TLS_CERT" placeholder:"FILE" more:"" help:"Serve TLS with this certificate, PEM."`
	TLSKey            string        `name:"tls-key" env:"STINT_TLS_KEY" placeholder:"FILE" more:"" help:"The key of --tls-cert."`
	Admin             string        `env:"STINT_ADMIN" placeholder:"ADDRESS" help:"A separate address for operators: /livez, /readyz, /metrics, the lab, and who is denied and why, such as 127.0.0.1:9090. The default is none."`
	TokenFile         string        `env:"STINT_TOKEN_FILE" placeholder:"FILE" help:"A file with the tokens of callers, one a line. Without it, everyone on this machine may ask."`
	OperatorTokenFile string        `env:"STINT_OPERATOR_TOKEN_FILE" placeholder:"FILE" more:"" help:"A file with the tokens of operators, who may also refund and reset."`
	Dialect           string        `env:"STINT_DIALECT" enum:"${dialects}" default:"draft11" more:"" help:"The header fields of answers: ${enum}. The default is draft11, RateLimit."`
	MaxBatch          int           `env:"STINT_MAX_BATCH" default:"100" placeholder:"N" more:"" help:"The most checks in one batch (${default})."`
	Drain             time.Duration `env:"STINT_DRAIN" default:"10s" more:"" help:"How long requests in flight may finish after SIGTERM or SIGINT (${default})."`
	DrainDelay        time.Duration `env:"STINT_DRAIN_DELAY" default:"0s" more:"" help:"How long to accept connections before that, while /readyz answers 503 (${default})."`

	anyone bool // every client that reaches an address may ask, without tokens and TLS too
}

// Help is what "stint serve --help" says below the summary.
func (serveCmd) Help() string {
	return `Programs send POST /v1/check to ask whether a request may pass; proxies such as
nginx, Traefik and Caddy send GET /auth. The rules file is read again when it
changes and on SIGHUP. docs/SERVE.md has the details.

For example:

    stint serve stint.yaml
    stint serve --limit '100/m' --key ip
    stint serve --rules sqlite:stint.db --demo
    curl --json '{"attributes":{"path":"/login","ip":"192.0.2.7"}}' \
        http://127.0.0.1:8080/v1/check
    stint serve -c stint.yaml --http :8443 --tls-cert cert.pem --tls-key key.pem \
        --token-file tokens`
}

// Run serves until SIGTERM or SIGINT; a second signal ends it at once.
func (c *serveCmd) Run(e *env) (err error) {
	ctx, stop := e.untilSignal()
	defer stop()
	defer func() { err = unlessStopped(ctx, err) }()
	defer setGCHeadroom()()
	if c.Demo && c.Rules == "" {
		return c.demo(ctx, e, c.HTTP, cmp.Or(c.Admin, demoAdmin))
	}
	if err := c.check(); err != nil {
		return err
	}
	c.by, c.from, c.operators = request.Serve, e.from, c.Admin
	logger := c.logger(e)
	if c.Demo {
		if err := c.fill(ctx, logger); err != nil {
			return err
		}
	}
	c.nameNode(c.HTTP)
	d, err := c.access(logger)
	if err != nil {
		return err
	}
	s, err := c.sources(ctx, "serve", &c.sourceFlags, logger)
	if err != nil {
		return err
	}
	defer s.close()
	ln, err := listen(ctx, "--http", c.HTTP)
	if err != nil {
		return err
	}
	defer ln.Close() // Serve has closed it, unless an error came first
	if d.open, err = d.exposed("--http", c.HTTP, ln.Addr(), logger); err != nil {
		return err
	}
	ds, err := c.openListeners(ctx, d, logger)
	if err != nil {
		return err
	}
	defer ds.close()
	return c.serve(ctx, ln, ds, s, d, logger)
}

// check returns an error for values out of range, and for flags that need others.
func (c *serveCmd) check() error {
	switch {
	case c.MaxBatch < 1:
		return usage("--max-batch", "%d: at least 1", c.MaxBatch)
	case c.Drain < 0:
		return usage("--drain", "%v: at least 0s", c.Drain)
	case c.DrainDelay < 0:
		return usage("--drain-delay", "%v: at least 0s", c.DrainDelay)
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return usage("--tls-cert", "goes with --tls-key: give both, or none")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return usage("--tls-client-ca", "goes with --tls-cert and --tls-key: without TLS nobody shows a certificate")
	}
	return c.connFlags.check()
}

// access reads the files of tokens and of TLS.
func (c *serveCmd) access(logger *slog.Logger) (*access, error) {
	d, err := newAccess(c.TokenFile, c.OperatorTokenFile, c.TLSCert, c.TLSKey, c.TLSClientCA, logger)
	if err == nil {
		d.anyone = c.anyone
	}
	return d, err
}

// serve answers until ctx is done.
func (c *serveCmd) serve(ctx context.Context, ln net.Listener, ds *listeners, s *sources, d *access, logger *slog.Logger) error {
	admin := &server.Admin{Source: s.source, Observer: s.observer}
	client := s.client
	_, client.TrustUnix = ln.Addr().(*net.UnixAddr)
	service := c.service(s)
	conns := c.conns(s, 1, logger)
	mostConns, _ := conns.Bounds()
	h := server.NewHandler(server.Options{
		Envoy:  service.JSON,
		Source: s.source, Observer: s.observer, Admin: admin, Log: logger, Usage: s.usage(logger),
		Open: d.open, Clients: d.clients, Operators: d.operators,
		Client: client, Claims: s.claims, Dialect: dialect(c.Dialect), MaxBatch: c.MaxBatch,
		MaxWaiting: mostConns,
	})
	o := server.ServeOptions{Log: logger, Drain: max(c.Drain, 1), Notice: c.DrainDelay}
	o.OnStop = func() {
		admin.Stop()
		logger.Info("stopping", "drain_delay", c.DrainDelay, "drain", c.Drain)
	}
	o.TLS = d.tls()
	var background sync.WaitGroup
	defer background.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	beside, finish := context.WithCancel(context.WithoutCancel(ctx)) // until requests have drained
	defer finish()
	if err := s.operators(beside, &c.sourceFlags, d, admin, &background, logger); err != nil {
		return err
	}
	s.follow(ctx, d, &background, logger)
	s.report(beside, &background)
	logger.Info("listening", "address", ln.Addr().String(), "rules", len(s.source.Policy().Rules().Names()),
		"store", s.where, "max_keys", c.MaxKeys, "tls", d.certificate != nil, "tokens", d.clients != nil, "operators", d.operators != nil)
	ds.bound(conns)
	failed := c.serveListeners(ctx, end, ds, service, admin, s, d, &background, logger)
	handler := server.Guard(h, ln.Addr(), s.observer)
	err := server.Serve(ctx, conns.Listen(ln), handler, o)
	end()
	finish()
	background.Wait()
	err = errors.Join(err, failed(), s.saveLast(logger))
	allowed, denied, undecided := s.observer.Counts()
	logger.Info("stopped", "allowed", allowed, "denied", denied, "failed", undecided)
	return err
}

// dialect returns the dialect of a flag's value, which kong has checked.
func dialect(name string) httplimit.Dialect {
	d, _ := httplimit.ParseDialect(name)
	return d
}

// headroom is how much garbage a server may have, in bytes, beyond what it has live,
// before the collector runs. It takes memory from no other program: the pages of the
// ballast are never written to, so they are never allocated.
const headroom = 32 << 20

// setGCHeadroom keeps the collector from running for every few megabytes of garbage
// while little is live, since each request leaves some. Its effect lasts until end is
// called. It does nothing if GOGC or GOMEMLIMIT is set.
func setGCHeadroom() (end func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	ballast := make([]byte, headroom)
	return func() { runtime.KeepAlive(ballast) }
}
