package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/cmd/internal/proxy"
)

type proxyCmd struct {
	Listen       string        `default:"127.0.0.1:8000" placeholder:"ADDRESS" help:"Where clients connect (${default}). :8000 is every address of this machine."`
	Upstream     string        `placeholder:"URL" help:"The server behind: http://127.0.0.1:9000."`
	UpstreamHost string        `enum:"client,upstream" default:"client" help:"The Host that the upstream sees: the one the client asked for (client, the default), or that of the URL (upstream)."`
	Limit        []string      `sep:"none" placeholder:"LIMIT" help:"How much each client may: '10/s burst 20'. Given several times, all of them hold at once. Under a leaky_queue requests wait for their turn."`
	Key          string        `default:"ip" help:"What tells clients apart: ip (the peer's address, IPv6 by /64), header.NAME (requests without it share one key) or none (all share one). Default: ${default}."`
	MaxKeys      int           `default:"1048576" placeholder:"N" help:"The most clients remembered, for each limit (${default}). Beyond it newcomers share limits."`
	Drain        time.Duration `default:"10s" help:"How long requests in flight may finish after SIGTERM or SIGINT (${default})."`
	Demo         bool          `help:"Bring a small server of its own to stand in front of, with '5 per 10s' unless --limit is given."`
}

// Help is what "stint proxy --help" says below the summary.
func (proxyCmd) Help() string {
	return `A denied request is answered 429 with Retry-After. What passes goes on
unchanged, with X-Forwarded-For, -Host and -Proto of this connection in place of
any that the client sent; streams and upgraded connections are never cut short.

For example:

    stint proxy --demo
    stint proxy --upstream http://127.0.0.1:9000 --limit '10/s burst 20'
    stint proxy --upstream http://127.0.0.1:9000 --limit 10/s --limit 1000/h \
        --key header.X-Api-Key
    stint proxy --upstream http://127.0.0.1:9000 --key none \
        --limit '50/s burst 100 leaky_queue'`
}

const demoLimit = "5 per 10s burst 5"

// Run serves until SIGTERM or SIGINT; a second one ends at once.
func (c *proxyCmd) Run(e *env) error {
	ctx, stop := signal.NotifyContext(e.ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop)
	logger := slog.New(slog.NewTextHandler(e.err, nil))
	options, store, err := c.options(logger)
	if err != nil {
		return err
	}
	defer store.Close()
	ln, err := listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer ln.Close() // Serve has closed it, unless it was never reached
	if c.Demo {
		stopDemo, err := c.startDemo(ctx, e, options, ln)
		if err != nil {
			return err
		}
		defer stopDemo()
	}
	h := proxy.NewHandler(*options)
	defer h.Close()
	logger.Info("listening", "address", ln.Addr().String(), "upstream", options.Upstream.Redacted(),
		"limits", fmt.Sprint(options.Limiter.Limits()), "key", c.Key)
	if strings.HasPrefix(c.Key, "header.") {
		logger.Warn("clients can choose their key: one that changes the header is a new client", "key", c.Key)
	}
	err = proxy.Serve(ctx, ln, h, c.Drain, logger)
	passed, denied, gone := h.Counts()
	logger.Info("stopped", "passed", passed, "denied", denied, "gave_up", gone)
	return err
}

// options reads the flags; the store is the caller's to close.
func (c *proxyCmd) options(logger *slog.Logger) (*proxy.Options, *memstore.Store, error) {
	upstream, err := c.upstream()
	if err != nil {
		return nil, nil, err
	}
	texts := c.Limit
	if len(texts) == 0 && c.Demo {
		texts = []string{demoLimit}
	}
	if len(texts) == 0 {
		return nil, nil, usage("--limit", "missing: write how much each client may, such as --limit '10/s burst 20'")
	}
	limits, err := parseLimits("--limit", texts)
	if err != nil {
		return nil, nil, err
	}
	key, err := proxy.ParseKey(c.Key)
	if err != nil {
		return nil, nil, &usageError{"--key", err}
	}
	switch {
	case c.MaxKeys < 1:
		return nil, nil, usage("--max-keys", "%d: at least 1", c.MaxKeys)
	case c.Drain < 0:
		return nil, nil, usage("--drain", "%v: at least 0s", c.Drain)
	}
	store := memstore.New(memstore.Options{MaxKeys: c.MaxKeys})
	limiter, err := stint.NewLimiter(store, limits...)
	if err != nil {
		_ = store.Close() // nothing is in it yet
		return nil, nil, &usageError{"--limit", err}
	}
	return &proxy.Options{
		Upstream: upstream, UpstreamHost: c.UpstreamHost == "upstream",
		Limiter: limiter, Key: key, Log: logger,
	}, store, nil
}

// upstream reads --upstream; nil for a demo.
func (c *proxyCmd) upstream() (*url.URL, error) {
	const example = "write the server behind, such as --upstream http://127.0.0.1:9000"
	switch {
	case c.Demo && c.Upstream != "":
		return nil, usage("--demo", "brings its own server: leave --upstream out")
	case c.Demo:
		return nil, nil
	case c.Upstream == "":
		return nil, usage("--upstream", "missing: %s, or try --demo", example)
	}
	u, err := url.Parse(c.Upstream)
	switch {
	case err != nil:
		return nil, usage("--upstream", "%q is no URL: %s", c.Upstream, example)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, usage("--upstream", "%q is no http or https URL: %s", c.Upstream, example)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, usage("--upstream", "only a scheme, a host and a path can be used: %s", example)
	}
	return u, nil
}

// listen opens --listen.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--listen %s: something else listens there already; choose another, such as --listen 127.0.0.1:8001, or 127.0.0.1:0 for any free port", address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("--listen %s: not allowed to listen there; ports from 1024 on need no rights", address)
	case err != nil:
		return nil, usage("--listen", "%s: %w", address, err)
	}
	return ln, nil
}

// startDemo starts the demo's server on a free port, makes it the upstream and
// says what to try.
func (c *proxyCmd) startDemo(ctx context.Context, e *env, o *proxy.Options, front net.Listener) (stop func(), err error) {
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the demo's server: %w", err)
	}
	o.Upstream = &url.URL{Scheme: "http", Host: ln.Addr().String()}
	server := &http.Server{Handler: proxy.Demo(), ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ln) // ends when it is closed
	}()
	if _, err = fmt.Fprint(e.out, c.guide(front.Addr().String(), o.Limiter.Limits())); err != nil {
		_ = server.Close()
		return nil, err
	}
	return func() {
		_ = server.Close() // the proxy has stopped: nobody is served
		<-done
	}, nil
}

// guide is what a demo prints: lines that work when pasted into a shell.
func (c *proxyCmd) guide(address string, limits []stint.Limit) string {
	if host, port, err := net.SplitHostPort(address); err == nil && (host == "::" || host == "0.0.0.0") {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	about := ""
	if len(c.Limit) == 0 {
		about = ": five pass, three are told to wait"
	}
	return fmt.Sprintf(`http://%[1]s/ now allows %[2]s to each client. Try, in another terminal:

  # an event stream passes as it comes
  curl -N http://%[1]s/stream

  # eight at once%[3]s
  for i in $(seq 8); do curl -s -o /dev/null -w '%%{http_code}\n' http://%[1]s/; done

  # what a denied client sees: 429, and Retry-After
  for i in $(seq 8); do curl -s -o /dev/null http://%[1]s/; done; curl -i http://%[1]s/

Ctrl-C stops it. A queue instead: stint proxy --demo --limit '1/s burst 5 leaky_queue'
`, address, strings.Join(texts, " and "), about)
}
