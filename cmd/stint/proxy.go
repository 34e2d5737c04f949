package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint/internal/ports"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/server"
)

type proxyCmd struct {
	sourceFlags `embed:""`
	limitFlags  `embed:""`
	connFlags   `embed:""`
	tokenFlags  `embed:""`

	Listen       string   `env:"STINT_LISTEN" default:"127.0.0.1:8000" placeholder:"ADDRESS" help:"The address for clients (${default}). :8000 is every address of this machine, unix:/run/stint.sock a Unix socket."`
	Upstream     string   `env:"STINT_UPSTREAM" placeholder:"URL" help:"The server behind the proxy: http://127.0.0.1:9000, or unix:/run/app.sock, a Unix socket."`
	UpstreamHost string   `env:"STINT_UPSTREAM_HOST" enum:"client,upstream" default:"client" more:"" help:"The Host header for the upstream: the client's (client, the default), or that of the URL (upstream)."`
	AllowUpgrade []string `name:"allow-upgrade" env:"STINT_ALLOW_UPGRADE" default:"websocket" placeholder:"NAME" more:"" help:"Protocols that a client may change to with Upgrade (${default}). The rules do not apply to what follows the upgrade."`
	Underscores  bool     `name:"allow-underscores" env:"STINT_ALLOW_UNDERSCORES" more:"" help:"Pass on headers with an underscore in their name. By default they are dropped, since many servers read an underscore as a hyphen."`
	TLSCert      string   `name:"tls-cert" env:"STINT_TLS_CERT" placeholder:"FILE" help:"Serve https with this certificate, PEM."`
	TLSKey       string   `name:"tls-key" env:"STINT_TLS_KEY" placeholder:"FILE" help:"The key of --tls-cert."`
	Admin        string   `env:"STINT_ADMIN" placeholder:"ADDRESS" help:"The address for operators: /livez, /readyz, /metrics, the lab, and who is denied and why, such as 127.0.0.1:9090. The default is none."`
	BodyRate     int64    `env:"STINT_BODY_RATE" default:"500" placeholder:"BYTES" more:"" help:"The lowest rate of a request body, in bytes a second after the first 20 seconds (${default}); 0 is no bound."`
	AnswerRate   int64    `env:"STINT_ANSWER_RATE" default:"500" placeholder:"BYTES" more:"" help:"The lowest rate at which a client may read answers, in bytes a second after 60 seconds without any (${default}); 0 is no bound."`
	MaxInFlight  int      `env:"STINT_MAX_IN_FLIGHT" default:"1000" placeholder:"N" more:"" help:"How many requests may wait for the upstream (${default}). Further requests get 503 at once; 0 is no bound."`

	MaxInFlightPerAddress int `name:"max-in-flight-per-address" env:"STINT_MAX_IN_FLIGHT_PER_ADDRESS" default:"0" placeholder:"N" more:"" help:"How many of them may be those of one client's address, IPv6 by /64. The default is a quarter of what is free."`
	MaxWaiting            int `name:"max-waiting" env:"STINT_MAX_WAITING" default:"10000" placeholder:"N" more:"" help:"How many requests may wait for their turn under a rule, and how many gRPC calls may be open (${default}). Further requests get 503 at once."`

	MaxLag     time.Duration `env:"STINT_MAX_LAG" default:"1s" more:"" help:"How long a request may wait to be read under overload before it gets 503 (${default}); 0s is no bound."`
	Drain      time.Duration `env:"STINT_DRAIN" default:"10s" more:"" help:"How long requests in flight and upgraded connections may finish after SIGTERM or SIGINT (${default})."`
	DrainDelay time.Duration `env:"STINT_DRAIN_DELAY" default:"0s" more:"" help:"How long to accept connections before that, while /readyz answers 503 (${default})."`
}

// tokenFlags say who may use --admin of a proxy.
type tokenFlags struct {
	TokenFile         string `env:"STINT_TOKEN_FILE" placeholder:"FILE" more:"" help:"At --admin: a file with the tokens of viewers, one a line."`
	OperatorTokenFile string `env:"STINT_OPERATOR_TOKEN_FILE" placeholder:"FILE" more:"" help:"At --admin: a file with the tokens of operators, who may also change limits, block and reset."`
}

// Help is what "stint proxy --help" says below the summary.
func (proxyCmd) Help() string {
	return `A request that the rules deny gets 429 with Retry-After; a gRPC call gets
RESOURCE_EXHAUSTED. Under a leaky_queue, requests wait until they may start. The
upstream gets a request in the form that the rules evaluated, with
X-Forwarded-For, -Host and -Proto of this connection in place of any that the
client sent. Streams and upgraded connections may last for any time while their
clients read. docs/PROXY.md has the details.

For example:

    stint proxy stint.yaml --upstream http://127.0.0.1:9000
    stint proxy --upstream http://127.0.0.1:9000 --limit '10/s burst 20'
    stint proxy --upstream http://127.0.0.1:9000 --limit 10/s --limit 1000/h \
        --key header.X-Api-Key
    stint proxy --upstream http://127.0.0.1:9000 --key none \
        --limit '50/s burst 100 leaky_queue'`
}

// Run serves until SIGTERM or SIGINT; a second signal ends it at once.
func (c *proxyCmd) Run(e *env) (err error) {
	ctx, stop := e.untilSignal()
	defer stop()
	defer func() { err = unlessStopped(ctx, err) }()
	defer setGCHeadroom()()
	c.by, c.from, c.operators = request.Proxy, e.from, c.Admin
	upstream, err := c.upstream()
	if err != nil {
		return err
	}
	logger := c.logger(e)
	d, err := c.access(logger)
	if err != nil {
		return err
	}
	c.nameNode(c.Listen)
	s, err := c.sources(ctx, "proxy", &c.sourceFlags, logger)
	if err != nil {
		return err
	}
	defer s.close()
	ln, err := listen(ctx, "--listen", c.Listen)
	if err != nil {
		return err
	}
	defer ln.Close()               // Serve has closed it, unless an error came first
	conns := c.conns(s, 2, logger) // the descriptors of the client's and the upstream's connection
	client := s.client
	_, client.TrustUnix = ln.Addr().(*net.UnixAddr)
	h, err := proxy.NewHandler(proxy.Options{
		Requests: conns.Requests(),
		Upstream: upstream, UpstreamHost: c.UpstreamHost == "upstream", Upgrades: c.AllowUpgrade, Underscores: c.Underscores,
		BodyRate: cmp.Or(c.BodyRate, -1), MaxInFlight: cmp.Or(c.MaxInFlight, -1), MaxInFlightPerAddress: c.MaxInFlightPerAddress, MaxWaiting: c.MaxWaiting, MaxLag: cmp.Or(c.MaxLag, -1),
		Source: s.source, Client: client, Claims: s.claims, Observer: s.observer, Log: logger,
	})
	if err != nil {
		return err
	}
	defer h.Close()
	return c.serve(ctx, ln, conns, h, s, d, logger)
}

// serve answers until ctx is done.
func (c *proxyCmd) serve(ctx context.Context, ln net.Listener, conns *server.Conns, h *proxy.Handler, s *sources, d *access, logger *slog.Logger) error {
	admin := &server.Admin{Source: s.source, Observer: s.observer}
	o := proxy.ServeOptions{TLS: d.tls(), Drain: c.Drain, Notice: c.DrainDelay, AnswerRate: cmp.Or(c.AnswerRate, -1), OnStop: admin.Stop, Log: logger}
	var background sync.WaitGroup
	defer background.Wait()
	beside, end := context.WithCancel(context.WithoutCancel(ctx)) // until the proxy has drained
	defer end()
	if err := s.operators(beside, &c.sourceFlags, d, admin, &background, logger); err != nil {
		return err
	}
	s.follow(beside, d, &background, logger)
	s.report(beside, &background)
	most, _ := conns.Bounds()
	logger.Info("listening", "address", ln.Addr().String(), "upstream", c.Upstream, "max_conns", most,
		"rules", len(s.source.Policy().Rules().Names()), "store", s.where, "tls", d.certificate != nil)
	err := proxy.Serve(ctx, conns.Listen(ln), h, o)
	end()
	background.Wait()
	err = errors.Join(err, s.saveLast(logger))
	passed, denied := h.Counts()
	logger.Info("stopped", "passed", passed, "denied", denied, "refused_at_once", h.Shed())
	return err
}

// access reads the certificate and the tokens.
func (c *proxyCmd) access(logger *slog.Logger) (*access, error) {
	if err := c.connFlags.check(); err != nil {
		return nil, err
	}
	switch {
	case c.Drain < 0:
		return nil, usage("--drain", "%v: at least 0s", c.Drain)
	case c.DrainDelay < 0:
		return nil, usage("--drain-delay", "%v: at least 0s", c.DrainDelay)
	case c.MaxInFlight < 0:
		return nil, usage("--max-in-flight", "%d: at least 0", c.MaxInFlight)
	case c.MaxInFlightPerAddress < 0:
		return nil, usage("--max-in-flight-per-address", "%d: at least 0", c.MaxInFlightPerAddress)
	case c.MaxWaiting < 1:
		return nil, usage("--max-waiting", "%d: at least 1", c.MaxWaiting)
	case c.MaxLag < 0:
		return nil, usage("--max-lag", "%v: at least 0s", c.MaxLag)
	case c.BodyRate < 0:
		return nil, usage("--body-rate", "%d: at least 0", c.BodyRate)
	case c.AnswerRate < 0:
		return nil, usage("--answer-rate", "%d: at least 0", c.AnswerRate)
	case slices.ContainsFunc(c.AllowUpgrade, func(name string) bool { return strings.EqualFold(name, "h2c") }):
		return nil, usage("--allow-upgrade", "h2c: requests in it would pass all rules; clients may speak HTTP/2 to the proxy without an upgrade")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return nil, usage("--tls-cert", "goes with --tls-key: give both, or none")
	}
	return newAccess(c.TokenFile, c.OperatorTokenFile, c.TLSCert, c.TLSKey, "", logger)
}

// upstream reads --upstream.
func (c *proxyCmd) upstream() (*url.URL, error) {
	const example = "write the server behind, such as --upstream http://127.0.0.1:9000"
	if c.Upstream == "" {
		return nil, usage("--upstream", "missing: %s", example)
	}
	u, err := url.Parse(c.Upstream)
	switch {
	case err != nil:
		return nil, usage("--upstream", "this is no URL: %s", example) // not quoted: it may hold a password
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, usage("--upstream", "only a scheme, a host and a path can be used: %s", example)
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return u, nil
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, usage("--upstream", "%q is no http or https URL: %s", c.Upstream, example)
	}
	if err := ports.Check(u); err != nil {
		return nil, usage("--upstream", "%s: %w", c.Upstream, err)
	}
	return u, nil
}
